// Goal: what was kept comes back, across restarts, within the bounds, and for its owner alone.
// Method: blocks whose bytes follow from their keys, small segments, a clock of the test's own.
#include "cache/store/disk_store.h"

#include <filesystem>
#include <random>
#include <thread>

#include "cache/store/store_testing.h"
#include "cache/store/survey.h"

namespace fathom {
namespace {

namespace fs = std::filesystem;

class DiskStoreTest : public StoreTest {};

TEST_F(DiskStoreTest, BringsBackWhatWasPut) {
  const auto store = open(options());
  put_chain(*store, 1, 0, 100);
  EXPECT_EQ(store->count(chain_keys(1, 120)), 100);
  EXPECT_EQ(store->count(chain_keys(2, 1)), 0);
  EXPECT_EQ(hits(*store, 1, 120), 100);
  const TierCounters counters = store->counters();
  EXPECT_EQ(counters.kept, 100);
  EXPECT_EQ(counters.hits, 100);
  EXPECT_EQ(counters.misses, 20);
  EXPECT_EQ(counters.bad, 0);
  EXPECT_EQ(counters.payload_bytes, 100 * kBlockBytes);
  EXPECT_EQ(counters.put_payload_bytes, 100 * kBlockBytes);
}

TEST_F(DiskStoreTest, KeepsAcrossRestartsWithoutReadingTheSegments) {
  put_chain(*open(options()), 1, 0, 100);
  const auto store = open(options());
  EXPECT_EQ(store->report().index_fault, "");
  EXPECT_FALSE(store->report().index_rebuilt);
  EXPECT_EQ(store->report().n_rows, 100);
  EXPECT_EQ(store->report().n_adopted, 0);
  EXPECT_EQ(store->count(chain_keys(1, 101)), 100);
  EXPECT_EQ(hits(*store, 1, 100), 100);
}

TEST_F(DiskStoreTest, GoesOnInItsLastSegmentAfterARestart) {
  for (int64_t i = 0; i < 10; ++i) put_chain(*open(options()), 1, i, i + 1);
  EXPECT_TRUE(fs::exists(path("seg-00000001")));
  EXPECT_FALSE(fs::exists(path("seg-00000002")));
  EXPECT_EQ(hits(*open(options()), 1, 10), 10);
}

TEST_F(DiskStoreTest, ReadsManyAtOnceAndBoundsThem) {
  StoreOptions small = options();
  small.max_reads = 200;
  const auto store = open(small);
  put_chain(*store, 1, 0, 200);
  std::vector<std::vector<std::byte>> into(201, std::vector<std::byte>(kBlockBytes));
  std::map<TierTicket, int64_t> asked;
  for (int64_t depth = 0; depth < 200; ++depth) {
    const auto ticket = store->get(chain_key(1, depth), into[static_cast<size_t>(depth)]);
    if (ticket.has_value()) asked[*ticket] = depth;
  }
  // Reads that ended and were not taken do not count, so the bound may have let all of them in.
  size_t n_ended = 0;
  while (n_ended < asked.size()) {
    for (const TierCompletion& ended : store->poll(1'000'000)) {
      ++n_ended;
      EXPECT_EQ(ended.status, TierStatus::kOk);
      const int64_t depth = asked.at(ended.ticket);
      EXPECT_EQ(into[static_cast<size_t>(depth)], payload_of_key(chain_key(1, depth), kBlockBytes));
    }
  }
  EXPECT_EQ(asked.size(), 200U);
}

TEST_F(DiskStoreTest, TakesABlockOnce) {
  const auto store = open(options());
  put_chain(*store, 1, 0, 3);
  const int64_t written = store->counters().written_bytes;
  put_chain(*store, 1, 0, 3);
  EXPECT_EQ(store->counters().found_again, 3);
  EXPECT_EQ(store->counters().kept, 3);
  EXPECT_EQ(store->counters().written_bytes, written);
}

TEST_F(DiskStoreTest, ForgetsAtOnceAndForGood) {
  {
    const auto store = open(options());
    put_chain(*store, 1, 0, 10);
    store->forget(chain_key(1, 4));
    EXPECT_EQ(store->count(chain_keys(1, 10)), 4);
    EXPECT_EQ(get(*store, chain_key(1, 4)), TierStatus::kMissing);
    EXPECT_EQ(store->counters().forgotten, 1);
  }
  const auto store = open(options());
  EXPECT_EQ(store->count(chain_keys(1, 10)), 4);
  EXPECT_EQ(hits(*store, 1, 10), 9);
}

TEST_F(DiskStoreTest, WritesOnThePlainRoadTheSameFiles) {
  StoreOptions plain = options();
  plain.road = DiskRoad::kPlain;
  put_chain(*open(plain), 1, 0, 50);
  const auto store = open(options());
  EXPECT_EQ(hits(*store, 1, 50), 50);
  EXPECT_EQ(open(plain =
                     [&] {
                       StoreOptions other = plain;
                       other.folder += "-other";
                       return other;
                     }())
                ->report()
                .road.substr(0, 16),
            "pread and pwrite");
  fs::remove_all(plain.folder);
}

TEST_F(DiskStoreTest, BoundsItsBytesUnderAStormOfWrites) {
  StoreOptions small = options();
  small.max_bytes = 12 * small.segment_bytes;
  const auto store = open(small);
  for (uint64_t chain = 0; chain < 20; ++chain) {
    put_chain(*store, chain, 0, 60);
    const TierCounters counters = store->counters();
    int64_t on_disk = 0;
    for (const auto& file : fs::directory_iterator(folder())) {
      on_disk += static_cast<int64_t>(file.file_size());
    }
    EXPECT_LE(counters.held_bytes, small.max_bytes + small.segment_bytes);
    EXPECT_LE(on_disk, small.max_bytes + small.segment_bytes);
  }
  EXPECT_GT(store->counters().evicted_size, 900);
  EXPECT_EQ(hits(*store, 19, 60), 60);
  EXPECT_LE(store->counters().written_bytes, 1200 * kPageBytes * 5 / 4);
}

TEST_F(DiskStoreTest, KeepsWhatIsUsedThroughAScan) {
  StoreOptions small = options();
  small.max_bytes = 24 * small.segment_bytes;
  const auto store = open(small);
  put_chain(*store, 1000, 0, 60);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(hits(*store, 1000, 60), 60);
  for (uint64_t chain = 0; chain < 20; ++chain) put_chain(*store, chain, 0, 60);
  EXPECT_EQ(hits(*store, 1000, 60), 60);
}

// Of the rows in the index's file.
int64_t n_used_rows(const std::string& folder) {
  const auto survey = survey_store(folder);
  if (!survey) return -1;
  return std::ranges::count_if(survey->rows, [](const IndexRow& row) { return row.n_uses > 0; });
}

TEST_F(DiskStoreTest, WritesUsesAtAFlushAndNoMoreThanCount) {
  const auto store = open(options());
  put_chain(*store, 1, 0, 50);
  EXPECT_EQ(hits(*store, 1, 20), 20);
  EXPECT_EQ(n_used_rows(folder()), 0);
  store->flush();
  EXPECT_EQ(n_used_rows(folder()), 20);
  EXPECT_EQ(hits(*store, 1, 20), 20);
  store->flush();
  const std::string index = slurp(path("index.mdb"));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(hits(*store, 1, 20), 20);
  store->flush();
  EXPECT_EQ(slurp(path("index.mdb")), index);
}

TEST_F(DiskStoreTest, WritesUsesOnceAMinute) {
  const auto store = open(options());
  put_chain(*store, 1, 0, 50);
  EXPECT_EQ(hits(*store, 1, 20), 20);
  put_chain(*store, 2, 0, 1);  // whose flush is the last one
  EXPECT_EQ(hits(*store, 1, 30), 30);
  EXPECT_EQ(n_used_rows(folder()), 20);
  clock_us_ += int64_t{61} * 1'000'000;
  EXPECT_TRUE(put(*store, chain_block(3, 0)));  // wakes the writer
  for (int i = 0; i < 1000 && n_used_rows(folder()) < 30; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(n_used_rows(folder()), 30);
}

TEST_F(DiskStoreTest, EvictsWhatIsCheapToComputeFirst) {
  StoreOptions small = options();
  small.max_bytes = 24 * small.segment_bytes;
  const auto store = open(small);
  for (int64_t depth = 0; depth < 120; ++depth) {
    TierBlock block = chain_block(7, depth);
    block.cost = 5;
    EXPECT_TRUE(put(*store, block));
    if (depth % 30 == 29) store->flush();
  }
  for (uint64_t chain = 100; chain < 110; ++chain) put_chain(*store, chain, 0, 45);
  EXPECT_EQ(hits(*store, 7, 120), 120);
  EXPECT_GT(store->counters().evicted_size, 200);
}

TEST_F(DiskStoreTest, CopiesWhatIsUsedOutOfASegmentThatGoesWithinItsBudget) {
  StoreOptions small = options();
  small.max_bytes = 24 * small.segment_bytes;
  const auto store = open(small);
  // One block in sixty is used.
  for (int64_t depth = 0; depth < 4; ++depth) {
    put_chain(*store, 1000, depth, depth + 1);
    put_chain(*store, static_cast<uint64_t>(depth), 0, 59);
  }
  for (int i = 0; i < 3; ++i) EXPECT_EQ(hits(*store, 1000, 4), 4);
  for (uint64_t chain = 100; chain < 112; ++chain) put_chain(*store, chain, 0, 60);
  EXPECT_EQ(hits(*store, 1000, 4), 4);
  EXPECT_LT(hits(*store, 0, 59), 59);
  const TierCounters counters = store->counters();
  const int64_t n_segments = counters.kept / 15 + 30;
  EXPECT_GT(counters.written_bytes, (counters.kept + counters.kept / 15) * kPageBytes);
  EXPECT_LE(counters.written_bytes, (counters.kept * 17 / 16 + n_segments) * kPageBytes);
}

TEST_F(DiskStoreTest, BoundsTheAge) {
  StoreOptions old = options();
  old.max_age_us = 1'000'000;
  const auto store = open(old);
  put_chain(*store, 1, 0, 40);
  clock_us_ += 900'000;
  put_chain(*store, 2, 0, 40);
  EXPECT_EQ(store->count(chain_keys(1, 40)), 40);
  clock_us_ += 200'000;
  EXPECT_EQ(store->count(chain_keys(1, 40)), 0);
  EXPECT_EQ(get(*store, chain_key(1, 0)), TierStatus::kMissing);
  EXPECT_EQ(store->count(chain_keys(2, 40)), 40);
  put_chain(*store, 3, 0, 1);
  put_chain(*store, 3, 1, 2);
  EXPECT_EQ(store->counters().evicted_age, 40);
  EXPECT_EQ(store->counters().n_blocks, 42);
  // An old block may be put again.
  put_chain(*store, 1, 0, 40);
  EXPECT_EQ(hits(*store, 1, 40), 40);
}

TEST_F(DiskStoreTest, RefusesWhatIsNotItsOwnByNameAndTouchesNothing) {
  put_chain(*open(options()), 1, 0, 10);
  const std::string card = slurp(path("store.fathom"));
  const std::string segment = slurp(path("seg-00000001"));
  StoreOptions other = options();
  other.identity.weights.fill(9);
  const auto refused = DiskStore::open(other);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalid);
  EXPECT_EQ(refused.error().message.substr(0, path("store.fathom").size()), path("store.fathom"));
  EXPECT_NE(refused.error().message.find("wanted 'weights 0909"), std::string::npos);

  for (const auto& [from, to] : std::map<std::string, std::string>{
           {"format 1", "format 9"}, {"byte order little", "byte order big"}}) {
    std::string changed = card;
    changed.replace(changed.find(from), from.size(), to);
    spill(path("store.fathom"), changed);
    const auto foreign = DiskStore::open(options());
    ASSERT_FALSE(foreign);
    EXPECT_NE(foreign.error().message.find(to), std::string::npos) << foreign.error().message;
  }
  // A card that is gone does not make the folder anybody's.
  fs::remove(path("store.fathom"));
  const auto nameless = DiskStore::open(options());
  ASSERT_FALSE(nameless);
  EXPECT_EQ(nameless.error().code, ErrorCode::kInvalid);
  spill(path("store.fathom"), card);
  EXPECT_EQ(slurp(path("seg-00000001")), segment);
  EXPECT_EQ(hits(*open(options()), 1, 10), 10);
}

TEST_F(DiskStoreTest, RefusesASegmentOfAnotherStore) {
  put_chain(*open(options()), 1, 0, 10);
  const std::string segment = slurp(path("seg-00000001"));
  fs::remove_all(folder());
  StoreOptions other = options();
  other.identity.spec.fill(7);
  put_chain(*open(other), 1, 0, 1);
  spill(path("seg-00000005"), segment);
  const auto refused = DiskStore::open(other);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message.substr(0, path("seg-00000005").size()), path("seg-00000005"));
  EXPECT_EQ(slurp(path("seg-00000005")), segment);
}

TEST_F(DiskStoreTest, RefusesASecondUserAndAFolderThatIsNotThere) {
  const auto store = open(options());
  const auto second = DiskStore::open(options());
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::kExhausted);
  EXPECT_NE(second.error().message.find(folder()), std::string::npos);

  StoreOptions missing = options();
  missing.folder = path("none");
  missing.create = false;
  EXPECT_EQ(DiskStore::open(missing).error().message, path("none") + ": no such folder");
  missing.folder = path("none/below");
  missing.create = true;
  EXPECT_NE(DiskStore::open(missing).error().message.find(path("none/below")), std::string::npos);
}

TEST_F(DiskStoreTest, OpensAfterALockThatAKilledProcessLeft) {
  put_chain(*open(options()), 1, 0, 5);
  spill(path(".fathom-writer"), "");
  EXPECT_EQ(hits(*open(options()), 1, 5), 5);
}

TEST_F(DiskStoreTest, RefusesOptionsThatCannotBe) {
  const auto complaint = [this](auto change) {
    StoreOptions bad = options();
    change(bad);
    const auto store = DiskStore::open(bad);
    EXPECT_FALSE(store);
    EXPECT_FALSE(fs::exists(folder()));
    return store ? std::string() : store.error().message;
  };
  EXPECT_EQ(complaint([](StoreOptions& bad) { bad.identity.block_bytes = 0; }),
            "store: wanted block bytes from 1 to 2^28, found 0");
  EXPECT_EQ(complaint([](StoreOptions& bad) { bad.segment_bytes = 4096; }),
            "store: wanted segment bytes from 8192 to 2^40, found 4096");
  EXPECT_EQ(complaint([](StoreOptions& bad) { bad.max_bytes = 3 * bad.segment_bytes; }),
            "store: wanted a bound of at least 4 segments, found 196608");
  EXPECT_EQ(complaint([](StoreOptions& bad) { bad.max_age_us = 0; }),
            "store: wanted an age above 0, found 0");
}

// Puts, reads in flight, forgetting, eviction and copies of what is used, all at once; a read
// brings the bytes of its key or leaves the buffer.
TEST_F(DiskStoreTest, ReadsRightBytesWhileSegmentsComeAndGo) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  StoreOptions small = options();
  small.max_bytes = 10 * small.segment_bytes;
  const auto store = open(small);
  struct Asked {
    BlockKey key;
    std::vector<std::byte> into;
  };
  std::map<TierTicket, Asked> asked;
  std::map<TierStatus, int64_t> statuses;
  const std::vector<std::byte> untouched(kBlockBytes, std::byte{0x5a});
  const auto settle = [&](int64_t timeout_us) {
    for (const TierCompletion& ended : store->poll(timeout_us)) {
      const Asked& read = asked.at(ended.ticket);
      const bool ok = ended.status == TierStatus::kOk;
      EXPECT_EQ(read.into, ok ? payload_of_key(read.key, kBlockBytes) : untouched);
      ++statuses[ended.status];
      asked.erase(ended.ticket);
    }
  };
  int64_t n_puts = 0;
  for (int64_t i = 0; i < 6000; ++i) {
    // Few chains are asked for often, so that their blocks outlive their segments.
    const bool popular = random() % 2 == 0;
    const uint64_t chain = popular ? 1 + random() % 2 : 100 + static_cast<uint64_t>(i) / 600;
    const auto depth = static_cast<int64_t>(random() % (popular ? 40 : 200));
    const uint64_t what = random() % 100;
    if (what < 50) {
      n_puts += put(*store, chain_block(chain, depth)) ? 1 : 0;
    } else if (what < 98) {
      Asked read = {chain_key(chain, depth), untouched};
      const auto ticket = store->get(read.key, read.into);
      ASSERT_TRUE(ticket.has_value());
      asked.emplace(*ticket, std::move(read));
    } else {
      store->forget(chain_key(chain, depth));
    }
    settle(random() % 20 == 0 ? 500 : 0);
  }
  while (!asked.empty()) settle(1'000'000);
  EXPECT_EQ(statuses[TierStatus::kBad], 0);
  EXPECT_GT(statuses[TierStatus::kOk], 200);
  EXPECT_GT(statuses[TierStatus::kMissing], 200);
  store->flush();
  const TierCounters counters = store->counters();
  EXPECT_GT(counters.evicted_size, 50);
  EXPECT_EQ(counters.kept + counters.found_again + counters.dropped_failed, n_puts);
  EXPECT_EQ(counters.n_blocks * kBlockBytes, counters.payload_bytes);
  EXPECT_EQ(counters.hits + counters.misses, counters.gets);
}

}  // namespace
}  // namespace fathom
