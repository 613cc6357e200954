// Goal: a record says what was written or nothing. Method: every bit of it turned round, every
// length, other identities; the bytes of one record are pinned, since disks are full of them.
#include "cache/store/record.h"

#include <gtest/gtest.h>

#include <cstring>

#include "cache/store/disk.h"
#include "cache/store/store_testing.h"

namespace fathom {
namespace {

StoreIdentity identity_of(uint8_t weights) {
  StoreIdentity identity;
  identity.weights.fill(weights);
  identity.spec.fill(2);
  identity.block_bytes = 5000;
  return identity;
}

RecordHead head_of(int64_t payload_bytes) {
  RecordHead head;
  head.block = chain_block(3, 5);
  head.block.grade = StateGrade::kBounded;
  head.block.cost = 2.5;
  head.payload_bytes = payload_bytes;
  head.created_us = 1'700'000'000'000'001;
  head.place = {7, 9};
  return head;
}

std::vector<std::byte> record_of(const RecordHead& head, const StoreIdentity& identity) {
  std::vector<std::byte> record(static_cast<size_t>(record_bytes(head.payload_bytes)),
                                std::byte{0xee});
  const std::vector<std::byte> payload = payload_of_key(head.block.key, head.payload_bytes);
  std::ranges::copy(payload, record.begin() + kRecordHeadBytes);
  seal_record(head, identity, record);
  return record;
}

TEST(StoreRecord, SaysWhatWasWritten) {
  for (const int64_t bytes : {1, 100, 3840, 3841, 5000}) {
    const RecordHead head = head_of(bytes);
    const std::vector<std::byte> record = record_of(head, identity_of(1));
    const auto opened = open_record(record, identity_of(1));
    ASSERT_TRUE(opened) << opened.error().message;
    EXPECT_EQ(opened->block.key, head.block.key);
    EXPECT_EQ(opened->block.parent, head.block.parent);
    EXPECT_EQ(opened->block.first_position, 320);
    EXPECT_EQ(opened->block.tenant_tag, 3U);
    EXPECT_EQ(opened->block.grade, StateGrade::kBounded);
    EXPECT_EQ(opened->block.cost, 2.5);
    EXPECT_EQ(opened->created_us, head.created_us);
    EXPECT_EQ(opened->place, head.place);
    const auto payload = payload_of(*opened, record);
    EXPECT_EQ(std::vector(payload.begin(), payload.end()), payload_of_key(head.block.key, bytes));
  }
}

TEST(StoreRecord, TakesOnePercentAtTheReleasedModelsBlock) {
  EXPECT_EQ(record_bytes(56960), 57344);
  EXPECT_EQ(record_bytes(kPageBytes - kRecordHeadBytes), kPageBytes);
}

TEST(StoreRecord, HasTheBytesOfFormatOne) {
  std::vector<std::byte> record = record_of(head_of(100), identity_of(1));
  EXPECT_EQ(to_hex(sha256(record)),
            "2e5eeef6142c1577a3f0fbf876f49ddb4a5f8227d89a888d3df1f08b478a577e");
  std::vector<std::byte> page(kPageBytes);
  seal_segment(7, identity_of(1), page);
  EXPECT_EQ(to_hex(sha256(page)),
            "c3e457f5c1472a5e30f9631331fe69c7f3168c9f92d46e64eb98092542401f10");
}

TEST(StoreRecord, RefusesEveryTurnedBit) {
  const std::vector<std::byte> sound = record_of(head_of(700), identity_of(1));
  for (size_t bit = 0; bit < 8 * (kRecordHeadBytes + 700); ++bit) {
    std::vector<std::byte> record = sound;
    record[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_FALSE(open_record(record, identity_of(1))) << "bit " << bit;
  }
}

TEST(StoreRecord, RefusesOtherIdentitiesAndWhatEndsEarly) {
  const std::vector<std::byte> record = record_of(head_of(5000), identity_of(1));
  EXPECT_FALSE(open_record(record, identity_of(3)));
  StoreIdentity small = identity_of(1);
  small.block_bytes = 4999;
  EXPECT_FALSE(open_record(record, small));
  for (const size_t size : {size_t{0}, size_t{255}, size_t{256}, record.size() - 1}) {
    const auto cut = open_record(std::span(record).first(size), identity_of(1));
    ASSERT_FALSE(cut);
    EXPECT_EQ(cut.error().code, ErrorCode::kExhausted);
  }
}

TEST(StoreSegment, TellsForeignPagesFromDamagedOnes) {
  std::vector<std::byte> page(kPageBytes);
  seal_segment(7, identity_of(1), page);
  EXPECT_TRUE(check_segment(7, identity_of(1), page));
  EXPECT_EQ(check_segment(8, identity_of(1), page).error().message, "number: wanted 8, found 7");
  EXPECT_EQ(check_segment(7, identity_of(3), page).error().code, ErrorCode::kInvalid);
  for (size_t bit = 0; bit < 8 * 104; ++bit) {
    std::vector<std::byte> damaged = page;
    damaged[bit / 8] ^= std::byte{1} << (bit % 8);
    const auto checked = check_segment(7, identity_of(1), damaged);
    ASSERT_FALSE(checked) << "bit " << bit;
    EXPECT_EQ(checked.error().code, ErrorCode::kNotFound);
  }
  // What a machine of the other byte order would have written.
  std::reverse(page.begin(), page.begin() + 8);
  EXPECT_EQ(check_segment(7, identity_of(1), page).error().code, ErrorCode::kInvalid);
}

TEST(StoreSegment, NamesAreReadAsTheyAreWritten) {
  EXPECT_EQ(segment_name(0x1a), "seg-0000001a");
  EXPECT_EQ(segment_number("seg-0000001a"), 0x1a);
  EXPECT_EQ(segment_number(segment_name(UINT32_MAX)), int64_t{UINT32_MAX});
  for (const char* name : {"seg-0000001A", "seg-1a", "seg-0000001a.tmp", "seg-0000001g", "x"}) {
    EXPECT_EQ(segment_number(name), -1) << name;
  }
}

}  // namespace
}  // namespace fathom
