// Goal: a sealed store gives back what was put, and its folder's files tell nothing of a payload;
// nothing in it is believed that its key did not seal; without its key it is counted, checked,
// compacted and erased, and not opened. Method: raw bytes of all files are searched; records are
// forged with sound checksums.
#include "cache/store/seal.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>

#include "cache/store/audit.h"
#include "cache/store/rewrite.h"
#include "cache/store/segment_scan.h"
#include "cache/store/store_testing.h"

namespace fathom {
namespace {

namespace fs = std::filesystem;

std::string repeated(const std::string& text, int n) {
  std::string result;
  for (int i = 0; i < n; ++i) result += text;
  return result;
}

class StoreSealTest : public StoreTest {
 protected:
  StoreSealTest() { key_ = key_of(5); }

  // Chains 1 to 4, their blocks mixed in four segments.
  void make_store() {
    const auto store = open(options());
    for (int64_t depth = 0; depth < 13; ++depth) {
      for (uint64_t chain = 1; chain <= 4; ++chain) {
        ASSERT_TRUE(put(*store, chain_block(chain, depth)));
      }
    }
  }
  StoreIdentity identity() const {
    const auto survey = survey_store(folder());
    EXPECT_TRUE(survey) << survey.error().message;
    return survey ? survey->identity : StoreIdentity();
  }
  std::string refusal() const {
    const auto store = DiskStore::open(options());
    return store ? "none" : store.error().message;
  }
  // How many pieces of the chain's payloads are in those bytes.
  static int64_t pieces(const std::string& bytes, uint64_t chain) {
    int64_t found = 0;
    for (int64_t depth = 0; depth < 13; ++depth) {
      const auto payload = payload_of_key(chain_key(chain, depth), kBlockBytes);
      const std::string_view text(reinterpret_cast<const char*>(payload.data()), payload.size());
      for (size_t at = 0; at < text.size(); at += 500) {
        found += bytes.find(text.substr(at, 16)) != std::string::npos ? 1 : 0;
      }
    }
    return found;
  }
  // Puts other bytes at a record's place: what `forge` makes of them, with sound checksums.
  template <typename Forge>
  void forge(const RecordPlace& place, const Forge& forge) const {
    const std::string name = path(segment_name(place.segment));
    std::string bytes = slurp(name);
    const auto record = std::as_writable_bytes(
        std::span(bytes).subspan(static_cast<size_t>(place.page) * kPageBytes, kPageBytes));
    forge(record);
    spill(name, bytes);
  }
  AuditReport audit(const std::optional<SecretKey>& key) const {
    const auto report = audit_store(folder(), {.key = key});
    EXPECT_TRUE(report) << report.error().message;
    return report ? *report : AuditReport();
  }
};

TEST_F(StoreSealTest, GivesBackWhatWasPutAlsoWithoutItsIndex) {
  make_store();
  for (int i = 0; i < 2; ++i) {
    const auto store = open(options());
    for (const uint64_t chain : {1, 2, 3, 4}) EXPECT_EQ(hits(*store, chain, 13), 13);
    fs::remove(path("index.mdb"));
  }
}

TEST_F(StoreSealTest, NoPayloadIsInTheFolder) {
  make_store();
  for (const uint64_t chain : {1, 2, 3, 4}) EXPECT_EQ(pieces(all_bytes(), chain), 0);
  // The search finds what is there.
  fs::remove_all(folder_);
  key_.reset();
  make_store();
  EXPECT_EQ(pieces(all_bytes(), 3), 13 * 6);
}

TEST_F(StoreSealTest, AnotherKeyOrNoneIsRefusedByNameAndNothingIsTouched) {
  make_store();
  const std::string bytes = all_bytes();
  const std::string where = path("store.fathom") + ": ";
  key_ = key_of(6);
  EXPECT_EQ(refusal(), where + "wanted the key that it is sealed with, found another");
  key_.reset();
  EXPECT_EQ(refusal(), where + "wanted the key that it is sealed with, found none");
  EXPECT_EQ(all_bytes(), bytes);
  key_ = key_of(5);
  EXPECT_EQ(hits(*open(options()), 2, 13), 13);
  fs::remove_all(folder_);
  key_.reset();
  make_store();
  key_ = key_of(5);
  EXPECT_EQ(refusal(), where + "wanted it sealed with the key, found it in clear");
}

TEST_F(StoreSealTest, ACardThatIsGoneOrChangedIsRefused) {
  make_store();
  const std::string card = slurp(path("store.fathom"));
  for (const char* line : {"cipher ", "salt ", "key check "}) {
    std::string changed = card;
    char& first = changed.at(changed.find(line) + std::strlen(line));
    first = first == '0' ? '1' : '0';
    spill(path("store.fathom"), changed);
    EXPECT_TRUE(refusal().starts_with(path("store.fathom") + ": wanted ")) << refusal();
  }
  fs::remove(path("store.fathom"));
  EXPECT_TRUE(refusal().starts_with(folder() + ": wanted store.fathom or an empty folder"));
  spill(path("store.fathom"), card);
  EXPECT_EQ(hits(*open(options()), 4, 13), 13);
}

TEST_F(StoreSealTest, TheCardTellsNothingOfTheKeyAndNoTwoStoresHaveOneSeal) {
  std::set<std::string> seen;
  for (int i = 0; i < 3; ++i) {
    const StoreSeal seal = make_seal(key_of(5));
    seen.insert({to_hex(seal.salt), to_hex(seal.key_check)});
    EXPECT_EQ(to_hex(seal.key_check).find("0505"), std::string::npos);
  }
  EXPECT_EQ(seen.size(), 6U);
}

TEST_F(StoreSealTest, ASegmentOfAnotherSealedStoreIsRefused) {
  make_store();
  const std::string segment = slurp(path("seg-00000001"));
  fs::remove_all(folder_);
  make_store();
  spill(path("seg-00000009"), segment);
  EXPECT_EQ(refusal(), path("seg-00000009") + ": seal: wanted this store's, found another");
  EXPECT_EQ(slurp(path("seg-00000009")), segment);
}

TEST_F(StoreSealTest, TheSameBlockIsNeverSealedTheSameWay) {
  const StoreIdentity identity = {.block_bytes = kBlockBytes, .seal = make_seal(*key_)};
  const auto sealer = open_seal(folder(), identity, key_);
  ASSERT_TRUE(sealer);
  RecordHead head;
  head.block = chain_block(1, 1);
  head.payload_bytes = 100;
  std::set<std::string> seen;
  for (int i = 0; i < 100; ++i) {
    std::vector<std::byte> record(kPageBytes);
    seal_record(head, identity, record, sealer->get());
    const auto* bytes = reinterpret_cast<const char*>(record.data());
    EXPECT_TRUE(seen.insert(std::string(bytes + 256, 100)).second);
  }
}

// A record that a copy or a compaction moves keeps its sealing; whatever else of its header is
// changed no longer opens, though every checksum is sound.
TEST_F(StoreSealTest, ARecordMovesWithoutTheKeyAndChangesWithItAlone) {
  const StoreIdentity identity = {.block_bytes = kBlockBytes, .seal = make_seal(*key_)};
  const auto sealer = open_seal(folder(), identity, key_);
  ASSERT_TRUE(sealer);
  RecordHead head;
  head.block = chain_block(1, 1);
  head.payload_bytes = 100;
  head.created_us = 77;
  const auto payload = payload_of_key(head.block.key, 100);
  std::vector<std::byte> sealed(kPageBytes, std::byte{0xee});
  std::ranges::copy(payload, sealed.begin() + kRecordHeadBytes);
  seal_record(head, identity, sealed, sealer->get());
  const RecordPlace elsewhere = {9, 8};
  place_record(elsewhere, sealed);
  const auto opens = [&](std::vector<std::byte> record) {
    const auto opened = open_record(record, identity);
    EXPECT_TRUE(opened) << opened.error().message;
    if (!opened || !unseal_record(**sealer, record)) return false;
    EXPECT_EQ(opened->place, elsewhere);
    EXPECT_TRUE(same_block(*opened, head));
    EXPECT_TRUE(std::ranges::equal(payload_of(*opened, record), payload));
    return true;
  };
  EXPECT_TRUE(opens(sealed));
  // Key, parent, tenant, position, time, cost, nonce, tag.
  for (const size_t at : {24, 56, 152, 160, 168, 176, 216, 232}) {
    std::vector<std::byte> forged = sealed;
    forged[at] ^= std::byte{1};
    place_record(elsewhere, forged);  // with sound checksums
    EXPECT_FALSE(opens(forged)) << at;
  }
  EXPECT_TRUE(opens(sealed));
}

TEST_F(StoreSealTest, AForgedRecordIsBadAndNamedByACheckWithTheKey) {
  make_store();
  const auto survey = survey_store(folder());
  ASSERT_TRUE(survey);
  const RecordHead head = survey->rows.at(20).head;
  const Sealer other(key_of(9));
  forge(head.place,
        [&](std::span<std::byte> record) { seal_record(head, identity(), record, &other); });
  EXPECT_TRUE(audit({}).problems.empty());
  const AuditReport report = audit(key_);
  ASSERT_EQ(report.problems.size(), 1U);
  EXPECT_TRUE(report.problems[0].starts_with(path(segment_name(head.place.segment)) + ": byte " +
                                             std::to_string(head.place.page * kPageBytes) +
                                             ": record: not sealed with the store's key"))
      << report.problems[0];
  const auto store = open(options());
  EXPECT_EQ(get(*store, head.block.key), TierStatus::kBad);
  EXPECT_EQ(get(*store, head.block.key), TierStatus::kMissing);
}

TEST_F(StoreSealTest, ACheckNeedsNoKeyAndRefusesAnotherOne) {
  make_store();
  EXPECT_EQ(audit({}).n_blocks, 52);
  EXPECT_EQ(audit(key_).n_blocks, 52);
  EXPECT_TRUE(audit(key_).problems.empty());
  const auto refused = audit_store(folder(), {.key = key_of(6)});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            path("store.fathom") + ": wanted the key that it is sealed with, found another");
  std::string bytes = slurp(path("seg-00000002"));
  bytes.at(3 * kPageBytes + 1000) ^= 1;
  spill(path("seg-00000002"), bytes);
  ASSERT_EQ(audit({}).problems.size(), 1U);
  EXPECT_TRUE(audit({}).problems[0].starts_with(path("seg-00000002") +
                                                ": byte 12288: record: payload checksum differs"));
}

// The bytes of a tenant that are on the disk are sealed ones, so those are looked for.
TEST_F(StoreSealTest, AnErasureNeedsNoKeyAndLeavesNothingOfTheTenant) {
  make_store();
  std::vector<std::string> traces;
  std::vector<std::string> others;
  for (uint32_t number = 1; number <= 4; ++number) {
    SegmentVisit visit;
    visit.record = [&](const RecordHead& head, std::span<const std::byte> record) {
      auto& into = head.block.tenant_tag == 3 ? traces : others;
      const auto* bytes = reinterpret_cast<const char*>(record.data());
      into.emplace_back(bytes + 24, 32);          // key
      into.emplace_back(bytes + 216, 32);         // nonce and tag
      into.emplace_back(bytes + 256, 32);         // payload
      into.emplace_back(bytes + 256 + 1500, 32);  // payload
      return true;
    };
    ASSERT_TRUE(scan_segment(path(segment_name(number)), number, identity(), visit));
  }
  ASSERT_EQ(traces.size(), 13U * 4);
  const auto found = [](const std::string& bytes, const std::vector<std::string>& parts) {
    return std::ranges::count_if(
        parts, [&](const auto& part) { return bytes.find(part) != std::string::npos; });
  };
  ASSERT_EQ(found(all_bytes(), traces), 13 * 4);
  const auto report =
      rewrite_store(folder(), {.erase_tenant = 3, .segment_bytes = options().segment_bytes});
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(report->n_erased, 13);
  EXPECT_EQ(found(all_bytes(), traces), 0);
  EXPECT_EQ(found(all_bytes(), others), 39 * 4);
  EXPECT_TRUE(audit(key_).problems.empty());
  const auto store = open(options());
  EXPECT_EQ(hits(*store, 3, 13), 0);
  for (const uint64_t chain : {1, 2, 4}) EXPECT_EQ(hits(*store, chain, 13), 13);
}

TEST_F(StoreSealTest, WhatIsCopiedOutOfASegmentThatGoesIsRead) {
  StoreOptions small = options();
  small.max_bytes = 24 * small.segment_bytes;
  const auto store = open(small);
  const auto place = [&] {
    const auto survey = survey_store(folder());
    const auto row = std::ranges::find_if(survey->rows, [](const IndexRow& item) {
      return item.head.block.key == chain_key(1000, 0);
    });
    return row->head.place;
  };
  for (int64_t depth = 0; depth < 4; ++depth) {
    put_chain(*store, 1000, depth, depth + 1);
    put_chain(*store, static_cast<uint64_t>(depth), 0, 59);
  }
  const RecordPlace before = place();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(hits(*store, 1000, 4), 4);
  for (uint64_t chain = 100; chain < 112; ++chain) put_chain(*store, chain, 0, 60);
  EXPECT_NE(place(), before);
  EXPECT_EQ(hits(*store, 1000, 4), 4);
  EXPECT_EQ(store->counters().bad, 0);
}

// Sealed with the key of 32 times 0x05: folders are full of such.
TEST_F(StoreSealTest, ReadsTheBytesOfFormatTwo) {
  const std::string card =
      "fathom prefix store\nformat 2\nbyte order little\nweights " + repeated("01", 32) +
      "\nspec " + repeated("02", 32) +
      "\nblock bytes 5000\ncipher XAES-256-GCM\n"
      "salt 64ab68daadbd8e7eec86637e319a9ca0f83caa19e3e7c66710976f415811a97d\n"
      "key check df580d04c094f2a459758e0a3518784b87a66aba3fca6b6ea7c563ddce3de1f7\n";
  const std::string bytes =
      "4654484d4b56523102000000040302010001000064000000a9928084ac1eb58388ddd0cb77f713f1fe657aa31d59"
      "6e0dc5d1a13baf987f71fd223b85f4dc20183fd595f90fc484d67a2242a9de5809cd3e844fa95954fc4a" +
      repeated("02", 32) + repeated("01", 32) +
      "0300000000000000400100000000000001401e18240a060000000000000004400700000009000000000000006"
      "4ab68daee7247f9df6266bd4560bf86dafe089ad393de69d3ad3329564d8d58abd6bdeb412c5993fb676aac7d9b"
      "99acae340c2621c6c7170386ea4392335b2bc19ee077387d5828ce22d8d3ad1e4f5f9d9633bac8240dbe7af9fc3"
      "3c93479e7ddfd934180cf6f990006ad0d71ab5fd60d2364b5a8b1bd9ab9d8eb1bd271c1eb8203792a0410f66b50"
      "14419438aa51caa6273640d722138f1199851f9775d2ba";
  const auto identity = parse_card(card);
  ASSERT_TRUE(identity) << identity.error().message;
  const auto sealer = open_seal(folder(), *identity, key_);
  ASSERT_TRUE(sealer) << sealer.error().message;
  std::vector<std::byte> record(kPageBytes);
  for (size_t i = 0; i < bytes.size() / 2; ++i) {
    record[i] = static_cast<std::byte>(std::stoi(bytes.substr(2 * i, 2), nullptr, 16));
  }
  const auto head = open_record(record, *identity);
  ASSERT_TRUE(head) << head.error().message;
  EXPECT_EQ(head->block.cost, 2.5);
  ASSERT_TRUE(unseal_record(**sealer, record));
  EXPECT_TRUE(std::ranges::equal(payload_of(*head, record), payload_of_key(chain_key(3, 5), 100)));
}

}  // namespace
}  // namespace fathom
