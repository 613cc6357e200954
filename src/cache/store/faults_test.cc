// Goal: whatever the disk does, what comes back is right or nothing. Method: every kind of damage
// to the files of a store, and a disk that refuses; every byte that a read brings is compared with
// what its key says, and what was not hit is still there.
#include <cerrno>
#include <filesystem>
#include <random>

#include "base/file.h"
#include "cache/store/index.h"
#include "cache/store/store_testing.h"

namespace fathom {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kN = 12;  // blocks of chain 1, all in the first segment

class StoreFaultsTest : public StoreTest {
 protected:
  using Verdict = FaultyDisk::Verdict;

  StoreOptions faulty_options() {
    StoreOptions options = this->options();
    fs::create_directories(folder());
    if (system_ == nullptr) system_ = system_disk(folder(), DiskRoad::kBest);
    if (faulty_ == nullptr) faulty_ = std::make_unique<FaultyDisk>(*system_);
    options.disk = faulty_.get();
    return options;
  }
  // The files of a sound store, to be damaged again and again.
  void fill() {
    put_chain(*open(options()), 1, 0, kN);
    for (const char* name : {"store.fathom", "seg-00000001", "index.mdb"}) {
      sound_[name] = slurp(path(name));
    }
  }
  void restore() {
    fs::remove_all(folder());
    fs::create_directory(folder());
    for (const auto& [name, bytes] : sound_) spill(path(name), bytes);
  }
  // Opens the damaged folder, reads every block twice, and goes on with it. How many were right.
  int64_t survivors() {
    const auto store = open(options());
    if (store == nullptr) return -1;
    const int64_t found = hits(*store, 1, kN);
    // What failed once is not looked at again.
    const int64_t n_bad = store->counters().bad;
    EXPECT_EQ(hits(*store, 1, kN), found);
    EXPECT_EQ(store->counters().bad, n_bad);
    return found;
  }

  std::map<std::string, std::string> sound_;
  std::unique_ptr<Disk> system_;
  std::unique_ptr<FaultyDisk> faulty_;
};

class StoreDamageTest : public StoreFaultsTest, public testing::WithParamInterface<bool> {
 protected:
  StoreDamageTest() {
    if (GetParam()) key_ = key_of(5);
  }
};
INSTANTIATE_TEST_SUITE_P(, StoreDamageTest, testing::Bool(), [](const auto& test) {
  return std::string(test.param ? "Sealed" : "InClear");
});

// What of a write reached the disk before the power went: a first part, and behind it what was
// there before, nothing, or something else; or all but a sector in the middle.
TEST_P(StoreDamageTest, ARecordTornAtAnySectorIsAMiss) {
  fill();
  const std::string& sound = sound_.at("seg-00000001");
  const size_t begin = sound.size() - kPageBytes;  // of the last record
  for (size_t at = begin; at < sound.size(); at += 512) {
    // What lies behind the payload says nothing.
    const bool harmless = at - begin >= static_cast<size_t>(kRecordHeadBytes + kBlockBytes);
    for (int kind = 0; kind < 8; ++kind) {
      restore();
      std::string torn = sound;
      if (kind / 2 == 0) torn.resize(at);
      if (kind / 2 == 1) std::fill(torn.begin() + static_cast<ptrdiff_t>(at), torn.end(), '\0');
      if (kind / 2 == 2) std::fill(torn.begin() + static_cast<ptrdiff_t>(at), torn.end(), 'x');
      if (kind / 2 == 3) torn.replace(at, 512, 512, '\0');
      spill(path("seg-00000001"), torn);
      // With the row, as if a disk had lied about being done, and without any.
      if (kind % 2 == 1) fs::remove(path("index.mdb"));
      const bool whole = harmless && kind / 2 != 0;
      EXPECT_EQ(survivors(), whole ? kN : kN - 1) << "at " << at - begin << " kind " << kind;
    }
  }
}

TEST_P(StoreDamageTest, ATurnedBitCostsAtMostItsRecord) {
  fill();
  std::mt19937_64 random(11);
  int64_t n_lost = 0;
  for (int i = 0; i < 50; ++i) {
    restore();
    std::string damaged = sound_.at("seg-00000001");
    const size_t bit = random() % (8 * damaged.size());
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    spill(path("seg-00000001"), damaged);
    if (i % 2 == 1) fs::remove(path("index.mdb"));
    const int64_t found = survivors();
    EXPECT_GE(found, kN - 1) << "bit " << bit;
    n_lost += kN - found;
  }
  EXPECT_GT(n_lost, 25);  // 3,256 of 4,096 bytes of a record count
}

TEST_F(StoreFaultsTest, ATurnedBitOfTheIndexCostsNothing) {
  fill();
  std::mt19937_64 random(12);
  for (int i = 0; i < 50; ++i) {
    restore();
    std::string damaged = sound_.at("index.mdb");
    const size_t bit = random() % (8 * damaged.size());
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    spill(path("index.mdb"), damaged);
    EXPECT_EQ(survivors(), kN) << "bit " << bit;
  }
}

TEST_F(StoreFaultsTest, AnIndexThatIsLostOrCutOrForeignIsMadeAnew) {
  fill();
  for (const std::string& index : {std::string(), std::string(5000, 'x'), std::string(100, '\0'),
                                   sound_.at("index.mdb").substr(0, 8192)}) {
    restore();
    spill(path("index.mdb"), index);
    {
      const auto store = open(options());
      EXPECT_TRUE(store->report().index_rebuilt);
      EXPECT_NE(store->report().index_fault, "");
      EXPECT_EQ(store->report().n_adopted, kN);
      EXPECT_EQ(hits(*store, 1, kN), kN);
    }
    EXPECT_FALSE(open(options())->report().index_rebuilt);
  }
  restore();
  fs::remove(path("index.mdb"));
  const auto store = open(options());
  EXPECT_TRUE(store->report().index_rebuilt);
  EXPECT_EQ(hits(*store, 1, kN), kN);
}

TEST_F(StoreFaultsTest, ATruncatedSegmentKeepsWhatIsWhole) {
  fill();
  const std::string& sound = sound_.at("seg-00000001");
  for (size_t size = 0; size < sound.size(); size += 1536) {
    restore();
    spill(path("seg-00000001"), sound.substr(0, size));
    const int64_t whole = std::max<int64_t>(0, static_cast<int64_t>(size) / kPageBytes - 1);
    const auto store = open(options());
    EXPECT_EQ(store->report().n_lost, kN - whole);
    EXPECT_EQ(hits(*store, 1, kN), whole);
    // And goes on.
    put_chain(*store, 1, 0, kN);
    EXPECT_EQ(hits(*store, 1, kN), kN);
  }
}

TEST_F(StoreFaultsTest, ASegmentThatIsGoneIsAMiss) {
  fill();
  fs::remove(path("seg-00000001"));
  const auto store = open(options());
  EXPECT_EQ(store->report().n_lost, kN);
  EXPECT_EQ(store->count(chain_keys(1, kN)), 0);
}

TEST_F(StoreFaultsTest, OneGoneWhileTheStoreIsOpenIsBadOnce) {
  const auto store = open(options());
  put_chain(*store, 1, 0, 40);
  fs::remove(path("seg-00000001"));
  EXPECT_EQ(hits(*store, 1, 40), 25);
  EXPECT_EQ(store->counters().bad, 15);
  EXPECT_EQ(store->count(chain_keys(1, 40)), 0);
  put_chain(*store, 1, 0, 40);
  EXPECT_EQ(hits(*store, 1, 40), 40);
}

TEST_F(StoreFaultsTest, ARecordInAnothersPlaceIsBad) {
  fill();
  std::string swapped = sound_.at("seg-00000001");
  const std::string second = swapped.substr(2 * kPageBytes, kPageBytes);
  swapped.replace(3 * kPageBytes, kPageBytes, second);
  restore();
  spill(path("seg-00000001"), swapped);
  EXPECT_EQ(survivors(), kN - 1);
}

TEST_F(StoreFaultsTest, AReadErrorIsBadAndOnlyThere) {
  StoreOptions options = faulty_options();
  std::vector<std::string> lines;
  options.problem = [&](const std::string& line) { lines.push_back(line); };
  auto store = open(options);
  put_chain(*store, 1, 0, kN);
  faulty_->judge = [](const IoRequest& request) -> Verdict {
    const bool third = request.kind == IoKind::kRead && request.offset == 3 * kPageBytes;
    return third ? Verdict{false, 0, -EIO} : Verdict{};
  };
  EXPECT_EQ(hits(*store, 1, kN), kN - 1);
  EXPECT_EQ(store->counters().bad, 1);
  EXPECT_EQ(store->count(chain_keys(1, kN)), 2);
  store.reset();  // its threads are gone
  EXPECT_EQ(lines, std::vector<std::string>{path("seg-00000001") +
                                            ": byte 12288: record: wanted the block that was put "
                                            "there, found other bytes"});
}

TEST_F(StoreFaultsTest, WithoutADescriptorToSpareBlocksAreMissedAndKept) {
  const auto store = open(faulty_options());
  put_chain(*store, 1, 0, kN);
  faulty_->refuses_open = [](const std::string&) { return true; };
  EXPECT_EQ(get(*store, chain_key(1, 0)), TierStatus::kMissing);
  faulty_->refuses_open = nullptr;
  EXPECT_EQ(hits(*store, 1, kN), kN);
}

TEST_F(StoreFaultsTest, ShortAndInterruptedTransfersAreDoneAgain) {
  const auto store = open(faulty_options());
  std::map<std::pair<int, int64_t>, int> seen;
  faulty_->judge = [&seen](const IoRequest& request) -> Verdict {
    const int nth = seen[{static_cast<int>(request.kind), request.offset}]++;
    if (nth == 0) return {false, 0, -EINTR};
    const int64_t part = request.kind == IoKind::kSync ? 0 : 512;
    if (nth == 1 && part > 0) return {false, part, part};
    return {};
  };
  put_chain(*store, 1, 0, 3);
  EXPECT_EQ(store->counters().dropped_failed, 0);
  EXPECT_EQ(hits(*store, 1, 3), 3);
}

TEST_F(StoreFaultsTest, AWriteOrSyncThatFailsLosesItsGroupAndNothingElse) {
  for (const IoKind failing : {IoKind::kWrite, IoKind::kSync}) {
    for (const int code : {EIO, ENOSPC}) {
      fs::remove_all(folder());
      {
        const auto store = open(faulty_options());
        put_chain(*store, 1, 0, 5);
        // Half of the write arrives.
        faulty_->judge = [&](const IoRequest& request) -> Verdict {
          if (request.kind != failing) return {};
          const auto half = static_cast<int64_t>(request.bytes.size()) / 1024 * 512;
          return {false, half, -code};
        };
        put_chain(*store, 2, 0, 5);
        EXPECT_EQ(store->counters().dropped_failed, 5);
        EXPECT_EQ(store->count(chain_keys(2, 5)), 0);
        EXPECT_EQ(hits(*store, 1, 5), 5);
        const bool full = code == ENOSPC;
        EXPECT_EQ(store->counters().max_bytes < options().max_bytes, full);
        faulty_->judge = nullptr;
        put_chain(*store, 3, 0, 5);
        EXPECT_EQ(hits(*store, 3, 5), 5);
      }
      const auto store = open(options());
      EXPECT_EQ(hits(*store, 1, 5), 5);
      EXPECT_EQ(hits(*store, 2, 5), 0);
      EXPECT_EQ(hits(*store, 3, 5), 5);
    }
  }
}

TEST_F(StoreFaultsTest, AfterARefusedWriteItWaitsBeforeItTriesAgain) {
  StoreOptions patient = faulty_options();
  patient.pause_us = 1'000'000;
  const auto store = open(patient);
  faulty_->judge = [](const IoRequest& request) -> Verdict {
    return request.kind == IoKind::kWrite ? Verdict{false, 0, -EIO} : Verdict{};
  };
  put_chain(*store, 1, 0, 1);
  faulty_->judge = nullptr;
  put_chain(*store, 1, 0, 1);
  EXPECT_EQ(store->counters().dropped_failed, 2);
  clock_us_ += 1'000'000;
  put_chain(*store, 1, 0, 1);
  EXPECT_EQ(store->counters().kept, 1);
  EXPECT_EQ(hits(*store, 1, 1), 1);
}

TEST_F(StoreFaultsTest, ADiskWithLessRoomThanTheBoundIsKeptWithinItsRoom) {
  const auto store = open(faulty_options());
  int64_t room = 80 * kPageBytes;
  // A disk of 80 pages and what was removed since.
  std::map<int, int64_t> ends;
  faulty_->judge = [&](const IoRequest& request) -> Verdict {
    if (request.kind != IoKind::kWrite) return {};
    int64_t on_disk = 0;
    for (const auto& file : fs::directory_iterator(folder())) {
      if (file.path().filename().string().starts_with("seg-")) {
        on_disk += static_cast<int64_t>(file.file_size());
      }
    }
    const bool fits = on_disk + static_cast<int64_t>(request.bytes.size()) <= room;
    return fits ? Verdict{} : Verdict{false, 0, -ENOSPC};
  };
  for (uint64_t chain = 0; chain < 30; ++chain) put_chain(*store, chain, 0, 10);
  const TierCounters counters = store->counters();
  EXPECT_GT(counters.evicted_size, 100);
  EXPECT_GT(counters.kept, 200);
  EXPECT_LT(counters.dropped_failed, 40);
  EXPECT_EQ(hits(*store, 29, 10), 10);
}

TEST_F(StoreFaultsTest, AFileThatCannotBeRemovedStopsTheWritingNotTheReading) {
  StoreOptions small = faulty_options();
  small.max_bytes = 4 * small.segment_bytes;
  const auto store = open(small);
  faulty_->refuses_remove = [](const std::string&) { return true; };
  int64_t n_taken = 0;
  for (int64_t depth = 0; depth < 100; ++depth) {
    n_taken += put(*store, chain_block(depth % 10, depth / 10)) ? 1 : 0;
    if (depth % 10 == 9) store->flush();
  }
  EXPECT_NE(store->broken().find("cannot remove"), std::string::npos);
  EXPECT_LE(store->counters().held_bytes, small.max_bytes);
  EXPECT_EQ(store->counters().dropped_failed, 100 - store->counters().kept);
  EXPECT_LT(n_taken, 100);
  int64_t found = 0;
  for (uint64_t chain = 0; chain < 10; ++chain) found += hits(*store, chain, 10);
  EXPECT_EQ(found, store->counters().n_blocks);
  EXPECT_GT(found, 20);
}

TEST_F(StoreFaultsTest, WhatTheQueueHasNoRoomForIsDroppedAndCounted) {
  StoreOptions tiny = options();
  tiny.queue_bytes = 4 * kPageBytes;
  const auto store = open(tiny);
  int64_t n_taken = 0;
  for (int64_t depth = 0; depth < 200; ++depth)
    n_taken += put(*store, chain_block(1, depth)) ? 1 : 0;
  store->flush();
  const TierCounters counters = store->counters();
  EXPECT_EQ(counters.kept, n_taken);
  EXPECT_EQ(counters.dropped_full, 200 - n_taken);
  EXPECT_EQ(counters.puts, 200);
  EXPECT_EQ(hits(*store, 1, 200), n_taken);
}

}  // namespace
}  // namespace fathom
