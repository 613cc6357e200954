// Goal: after an erasure nothing of the tenant is in the folder's files and everything else is
// found; compaction leaves live records alone; a failure at any point loses nothing. Method: raw
// bytes of all files are searched; a disk that fails at the n-th transfer, for every n.
#include "cache/store/rewrite.h"

#include <filesystem>

#include "cache/store/audit.h"
#include "cache/store/store_testing.h"

namespace fathom {
namespace {

namespace fs = std::filesystem;

class RewriteTest : public StoreTest {
 protected:
  // Chains 1 to 4, their blocks mixed in four segments.
  void make_store() {
    const auto store = open(options());
    for (int64_t depth = 0; depth < 13; ++depth) {
      for (uint64_t chain = 1; chain <= 4; ++chain) {
        ASSERT_TRUE(put(*store, chain_block(chain, depth)));
      }
    }
  }
  // How many of the chain's payloads, keys and tags are somewhere in the folder, by piece.
  static int64_t traces(const std::string& bytes, uint64_t chain, int64_t n) {
    int64_t found = 0;
    const auto search = [&](std::span<const std::byte> part) {
      const std::string_view text(reinterpret_cast<const char*>(part.data()), part.size());
      found += bytes.find(text) != std::string::npos ? 1 : 0;
    };
    for (int64_t depth = 0; depth < n; ++depth) {
      const BlockKey key = chain_key(chain, depth);
      const auto payload = payload_of_key(key, kBlockBytes);
      search(std::span(payload).first(32));
      search(std::span(payload).subspan(1000, 32));
      search(std::as_bytes(std::span(key.digest)));
    }
    return found;
  }
  RewriteReport rewrite(std::optional<uint64_t> tenant) const {
    const auto report =
        rewrite_store(folder(), {.erase_tenant = tenant, .segment_bytes = options().segment_bytes});
    EXPECT_TRUE(report) << report.error().message;
    return report ? *report : RewriteReport();
  }
  void expect_sound() const {
    const auto report = audit_store(folder(), {});
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_EQ(report->problems, std::vector<std::string>());
  }
};

TEST_F(RewriteTest, AfterAnErasureNothingOfTheTenantIsThere) {
  make_store();
  ASSERT_EQ(traces(all_bytes(), 3, 13), 39);
  const RewriteReport report = rewrite(3);
  EXPECT_EQ(report.n_erased, 13);
  EXPECT_EQ(report.n_moved, 39);
  EXPECT_EQ(report.n_rewritten, 4);
  EXPECT_LT(report.bytes_after, report.bytes_before);
  EXPECT_EQ(traces(all_bytes(), 3, 13), 0);
  expect_sound();
  const auto store = open(options());
  EXPECT_EQ(hits(*store, 3, 13), 0);
  for (const uint64_t chain : {1, 2, 4}) EXPECT_EQ(hits(*store, chain, 13), 13);
  EXPECT_EQ(store->report().n_rows, 39);
}

TEST_F(RewriteTest, AnErasureReachesForgottenAndDamagedRecords) {
  make_store();
  {
    const auto store = open(options());
    store->forget(chain_key(3, 12));
    store->flush();
  }
  std::string bytes = slurp(path("seg-00000001"));
  bytes.at(3 * kPageBytes + 8) ^= 1;  // the header of chain 3's first block
  spill(path("seg-00000001"), bytes);
  rewrite(3);
  EXPECT_EQ(traces(all_bytes(), 3, 13), 0);
  expect_sound();
}

TEST_F(RewriteTest, SegmentsWithoutTheTenantStayAsTheyAre) {
  {
    const auto store = open(options());
    put_chain(*store, 1, 0, 15);
    put_chain(*store, 2, 0, 15);
  }
  const std::string first = slurp(path("seg-00000001"));
  EXPECT_EQ(rewrite(2).n_rewritten, 1);
  EXPECT_EQ(slurp(path("seg-00000001")), first);
  EXPECT_FALSE(fs::exists(path("seg-00000002")));
  EXPECT_EQ(rewrite(99).n_rewritten, 0);
}

TEST_F(RewriteTest, CompactionTakesDeadBytesAndKeepsTimes) {
  make_store();
  EXPECT_EQ(rewrite({}).n_rewritten, 0);
  {
    const auto store = open(options());
    for (int64_t depth = 0; depth < 13; ++depth) store->forget(chain_key(2, depth));
    store->flush();
  }
  clock_us_ += 1000;
  const auto before = survey_store(folder());
  const RewriteReport report = rewrite({});
  EXPECT_EQ(report.n_moved, 39);
  const auto after = survey_store(folder());
  ASSERT_TRUE(before && after);
  EXPECT_EQ(after->bytes() - after->index_bytes, 42 * kPageBytes);
  ASSERT_EQ(after->rows.size(), before->rows.size());
  for (size_t i = 0; i < after->rows.size(); ++i) {
    EXPECT_EQ(after->rows[i].head.block.key, before->rows[i].head.block.key);
    EXPECT_EQ(after->rows[i].head.created_us, before->rows[i].head.created_us);
  }
  expect_sound();
  EXPECT_EQ(rewrite({}).n_rewritten, 0);
}

TEST_F(RewriteTest, AFailureAtAnyTransferLosesNothing) {
  int n_failed = 0;
  for (int fails_at = 0;; ++fails_at) {
    SCOPED_TRACE(fails_at);
    fs::remove_all(folder_);
    make_store();
    const auto disk = system_disk(folder(), DiskRoad::kPlain);
    FaultyDisk faulty(*disk);
    int n = 0;
    faulty.judge = [&](const IoRequest& request) {
      const auto size = static_cast<int64_t>(request.bytes.size());
      if (n++ < fails_at) return FaultyDisk::Verdict();
      return FaultyDisk::Verdict{false, size / 2 / kPageBytes * kPageBytes, -ENOSPC};
    };
    const auto report = rewrite_store(
        folder(), {.erase_tenant = 3, .segment_bytes = options().segment_bytes, .disk = &faulty});
    if (report) break;
    ++n_failed;
    EXPECT_NE(report.error().message.find(folder()), std::string::npos) << report.error().message;
    {
      const auto store = open(options());
      for (const uint64_t chain : {1, 2, 4}) EXPECT_EQ(hits(*store, chain, 13), 13);
    }
    rewrite(3);
    EXPECT_EQ(traces(all_bytes(), 3, 13), 0);
    expect_sound();
  }
  EXPECT_GT(n_failed, 5);
}

TEST_F(RewriteTest, WhatStopsItLeavesASoundStore) {
  make_store();
  int n = 0;
  const auto stopped =
      rewrite_store(folder(), {.erase_tenant = 3,
                               .segment_bytes = options().segment_bytes,
                               .progress = [&](int64_t, int64_t) { return n++ < 2; }});
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, ErrorCode::kCancelled);
  expect_sound();
  rewrite(3);
  EXPECT_EQ(traces(all_bytes(), 3, 13), 0);
}

TEST_F(RewriteTest, AStoreInUseOrWithoutIndexIsRefused) {
  make_store();
  {
    const auto store = open(options());
    const auto refused = rewrite_store(folder(), {});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::kExhausted);
  }
  fs::remove(path("index.mdb"));
  const auto refused = rewrite_store(folder(), {.erase_tenant = 3});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, path("index.mdb") +
                                         ": wanted the index, found none; a start of the store "
                                         "makes it anew");
}

}  // namespace
}  // namespace fathom
