// Goal: what one process puts another finds, verified, without asking it; bounds hold for the
// folder whoever writes; a foreign folder, damage, a full or unwritable disk are refused or missed,
// never wrong bytes. Method: several stores on one folder, in this process and in killed ones;
// every byte that comes back is compared with what its key says.
#include "cache/store/shared_store.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <sstream>
#include <thread>

#include "base/clock.h"
#include "base/file.h"
#include "base/folder_testing.h"
#include "cache/store/block_testing.h"
#include "cache/store/disk_store.h"
#include "cache/store/shared_folder.h"

namespace fathom {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kBlock = 3000;
constexpr int64_t kRecord = 4096;
constexpr int64_t kHourUs = int64_t{3600} * 1'000'000;

class SharedStoreTest : public FolderTest {
 protected:
  SharedOptions options() {
    return {.folder = folder(),
            .identity = {.weights = {1}, .spec = {2}, .block_bytes = kBlock},
            .max_bytes = int64_t{64} << 20,
            .n_workers = 3,
            .look_us = 20'000,
            .unix_us = [this] { return unix_microseconds() + shift_us_; }};
  }
  static std::unique_ptr<SharedStore> open(const SharedOptions& options) {
    auto store = SharedStore::open(options);
    EXPECT_TRUE(store) << store.error().message;
    return store ? std::move(*store) : nullptr;
  }

  static void put(SharedStore& store, uint64_t chain, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      const TierBlock block = chain_block(chain, i);
      EXPECT_TRUE(store.put(block, payload_of_key(block.key, kBlock)));
    }
    store.flush();
  }
  static std::vector<BlockKey> keys(uint64_t chain, int64_t n) {
    std::vector<BlockKey> keys;
    for (int64_t i = 0; i < n; ++i) keys.push_back(chain_key(chain, i));
    return keys;
  }
  // Bytes of a block that came are always those that its key says.
  static TierStatus get(SharedStore& store, const BlockKey& key) {
    std::vector<std::byte> bytes(kBlock);
    const auto ticket = store.get(key, bytes);
    EXPECT_TRUE(ticket);
    const auto ended = store.poll(30'000'000);
    EXPECT_EQ(ended.size(), 1);
    const TierStatus status = ended.empty() ? TierStatus::kMissing : ended[0].status;
    if (status == TierStatus::kOk) {
      EXPECT_EQ(bytes, payload_of_key(key, kBlock));
    }
    return status;
  }

  std::string path_of(const BlockKey& key) const {
    const std::string name = to_hex(key.digest);
    return folder() + "/" + name.substr(0, 2) + "/" + name;
  }
  // A file that has its temporary name still counts once.
  int64_t bytes_there() const {
    std::map<ino_t, int64_t> files;
    for (const auto& entry : fs::recursive_directory_iterator(folder())) {
      struct stat status = {};
      if (::stat(entry.path().c_str(), &status) != 0 || !S_ISREG(status.st_mode)) continue;
      files[status.st_ino] = status.st_size;
    }
    int64_t bytes = 0;
    for (const auto& [inode, n] : files) bytes += n;
    return bytes;
  }

  std::atomic<int64_t> shift_us_ = 0;
};

TEST_F(SharedStoreTest, WhatOneProcessPutsAnotherFinds) {
  auto first = open(options());
  auto second = open(options());
  put(*first, 1, 50);
  EXPECT_EQ(first->count(keys(1, 60)), 50);
  second->look();
  EXPECT_EQ(second->count(keys(1, 60)), 50);
  for (const BlockKey& key : keys(1, 50)) EXPECT_EQ(get(*second, key), TierStatus::kOk);
  const TierCounters counters = second->counters();
  EXPECT_EQ(counters.hits, 50);
  EXPECT_EQ(counters.n_blocks, 50);
  EXPECT_EQ(counters.held_bytes, 50 * kRecord);
  EXPECT_EQ(get(*second, chain_key(2, 0)), TierStatus::kMissing);
  EXPECT_EQ(first->counters().kept, 50);
  // A third one, long after.
  first.reset();
  second.reset();
  const auto third = open(options());
  EXPECT_EQ(third->count(keys(1, 60)), 50);
  EXPECT_EQ(get(*third, chain_key(1, 49)), TierStatus::kOk);
}

TEST_F(SharedStoreTest, TheFirstWriterOfABlockWins) {
  auto first = open(options());
  auto second = open(options());
  put(*first, 1, 20);
  struct stat before = {};
  ASSERT_EQ(::stat(path_of(chain_key(1, 3)).c_str(), &before), 0);
  put(*second, 1, 20);  // before it has looked, or after
  struct stat after = {};
  ASSERT_EQ(::stat(path_of(chain_key(1, 3)).c_str(), &after), 0);
  EXPECT_EQ(before.st_ino, after.st_ino);
  EXPECT_EQ(second->counters().kept, 0);
  EXPECT_EQ(second->counters().found_again, 20);
  EXPECT_EQ(second->count(keys(1, 20)), 20);
  EXPECT_EQ(bytes_there() - static_cast<int64_t>(fs::file_size(folder() + "/shared.fathom")),
            20 * kRecord);
}

TEST_F(SharedStoreTest, WritersAtOnceAgreeOnOneFileABlock) {
  std::vector<std::unique_ptr<SharedStore>> stores;
  for (int i = 0; i < 4; ++i) stores.push_back(open(options()));
  {
    std::vector<std::jthread> threads;
    for (const auto& store : stores) threads.emplace_back([&store] { put(*store, 5, 50); });
  }
  int64_t n_kept = 0;
  for (const auto& store : stores) {
    n_kept += store->counters().kept;
    EXPECT_EQ(store->counters().kept + store->counters().found_again, 50);
    EXPECT_EQ(store->count(keys(5, 50)), 50);
    EXPECT_EQ(get(*store, chain_key(5, 37)), TierStatus::kOk);
  }
  EXPECT_EQ(n_kept, 50);
}

TEST_F(SharedStoreTest, DamageIsFoundAndRemoved) {
  auto store = open(options());
  put(*store, 1, 40);
  std::mt19937 random(3);
  for (int64_t i = 0; i < 40; ++i) {
    const std::string path = path_of(chain_key(1, i));
    std::string bytes = *read_file(path);
    const size_t n_used = 256 + kBlock;
    if (i % 4 == 0) bytes[random() % n_used] ^= static_cast<char>(1 << random() % 8);
    if (i % 4 == 1) bytes.resize(random() % n_used);
    if (i % 4 == 2) bytes = *read_file(path_of(chain_key(1, (i + 1) % 40)));
    if (i % 4 == 3) continue;
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  }
  for (int64_t i = 0; i < 40; ++i) {
    const BlockKey key = chain_key(1, i);
    EXPECT_EQ(get(*store, key), i % 4 == 3 ? TierStatus::kOk : TierStatus::kBad) << i;
    EXPECT_EQ(fs::exists(path_of(key)), i % 4 == 3);
    EXPECT_EQ(store->count({&key, 1}), i % 4 == 3 ? 1 : 0);
  }
  EXPECT_EQ(store->counters().bad, 30);
  put(*store, 1, 40);
  EXPECT_EQ(store->count(keys(1, 40)), 40);
  EXPECT_EQ(get(*store, chain_key(1, 0)), TierStatus::kOk);
}

TEST_F(SharedStoreTest, AFolderOfAnotherModelOrOfSomebodyElseIsRefusedByName) {
  open(options()).reset();
  SharedOptions other = options();
  other.identity.weights = {9};
  const auto weights = SharedStore::open(other);
  ASSERT_FALSE(weights);
  EXPECT_NE(weights.error().message.find(folder() + "/shared.fathom: wanted 'weights 09"),
            std::string::npos)
      << weights.error().message;
  const std::string mine = folder() + "/mine";
  fs::create_directory(mine);
  std::ofstream(mine + "/letter.txt") << "dear";
  other = options();
  other.folder = mine;
  const auto foreign = SharedStore::open(other);
  ASSERT_FALSE(foreign);
  EXPECT_EQ(foreign.error().message,
            mine + ": wanted an empty folder or a shared store, found letter.txt");
  EXPECT_EQ(*read_file(mine + "/letter.txt"), "dear");
  EXPECT_FALSE(fs::exists(mine + "/shared.fathom"));
  other.folder = folder() + "/none/below";
  EXPECT_FALSE(SharedStore::open(other));
  other = options();
  other.max_bytes = 10 * kRecord;
  EXPECT_FALSE(SharedStore::open(other));
  // Neither kind of store takes the other one for its own.
  const std::string disk = folder() + "/disk";
  ASSERT_TRUE(DiskStore::open({.folder = disk, .identity = options().identity}));
  other = options();
  other.folder = disk;
  EXPECT_FALSE(SharedStore::open(other));
  EXPECT_FALSE(DiskStore::open({.folder = folder(), .identity = options().identity}));
}

TEST_F(SharedStoreTest, OldBlocksAreNotFoundAndGo) {
  SharedOptions with_age = options();
  with_age.max_age_us = 2 * kHourUs;
  auto store = open(with_age);
  put(*store, 1, 10);
  shift_us_ = kHourUs;
  put(*store, 2, 10);
  shift_us_ = 2 * kHourUs + 1'000'000;
  EXPECT_EQ(store->count(keys(1, 10)), 0);
  EXPECT_EQ(get(*store, chain_key(1, 0)), TierStatus::kMissing);
  EXPECT_EQ(store->count(keys(2, 10)), 10);
  for (int i = 0; i < 9; ++i) store->look();
  EXPECT_FALSE(fs::exists(path_of(chain_key(1, 5))));
  EXPECT_TRUE(fs::exists(path_of(chain_key(2, 5))));
  EXPECT_EQ(store->counters().evicted_age, 10);  // one when it was asked for
  EXPECT_FALSE(fs::exists(path_of(chain_key(1, 0))));
  EXPECT_EQ(store->counters().bytes_by_age[1], 10 * kBlock);
}

// Each process counts what is there, not what it wrote.
TEST_F(SharedStoreTest, SeveralWritersKeepOneBoundAndWhatWasUsed) {
  SharedOptions small = options();
  small.max_bytes = 240 * kRecord;
  std::vector<std::unique_ptr<SharedStore>> stores;
  for (int i = 0; i < 4; ++i) stores.push_back(open(small));
  put(*stores[0], 1, 60);
  int64_t most = 0;
  std::atomic<bool> done = false;
  std::jthread watch([&] {
    while (!done) most = std::max(most, bytes_there());
  });
  for (uint64_t round = 0; round < 4; ++round) {
    shift_us_ += 2 * 60 * int64_t{1'000'000};
    for (const BlockKey& key : keys(1, 60)) {
      EXPECT_EQ(get(*stores[round % 4], key), TierStatus::kOk) << round;
    }
    for (const auto& store : stores) store->look();
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < stores.size(); ++i) {
      threads.emplace_back([&, i] { put(*stores[i], 100 + round * 4 + i, 25); });
    }
  }
  done = true;
  watch.join();
  EXPECT_LE(most, small.max_bytes);
  for (const auto& store : stores) store->look();
  EXPECT_GE(bytes_there(), small.max_bytes / 2);
  int64_t n_evicted = 0;
  for (const auto& store : stores) n_evicted += store->counters().evicted_size;
  EXPECT_GE(n_evicted, 400 + 60 - 240);
  EXPECT_EQ(stores[3]->count(keys(1, 60)), 60);
}

TEST_F(SharedStoreTest, WhatAnotherProcessRemovedIsMissed) {
  auto first = open(options());
  auto second = open(options());
  put(*first, 1, 10);
  second->look();
  fs::remove(path_of(chain_key(1, 4)));
  EXPECT_EQ(second->count(keys(1, 10)), 10);
  EXPECT_EQ(get(*second, chain_key(1, 4)), TierStatus::kMissing);
  EXPECT_EQ(second->count(keys(1, 10)), 4);
  first->forget(chain_key(1, 2));
  EXPECT_EQ(first->count(keys(1, 10)), 2);
  first->look();
  second->look();
  EXPECT_EQ(second->count(keys(1, 10)), 2);
  EXPECT_FALSE(fs::exists(path_of(chain_key(1, 2))));
}

TEST_F(SharedStoreTest, AFolderThatCannotBeWrittenCostsThePutsAlone) {
  auto store = open(options());
  put(*store, 1, 5);
  // A shard that is no folder.
  const BlockKey key = chain_key(7, 0);
  const std::string shard = fs::path(path_of(key)).parent_path();
  fs::remove_all(shard);
  std::ofstream(shard) << "x";
  EXPECT_TRUE(store->put(chain_block(7, 0), payload_of_key(key, kBlock)));
  store->flush();
  EXPECT_EQ(store->counters().dropped_failed, 1);
  EXPECT_NE(store->failure().find(shard), std::string::npos) << store->failure();
  EXPECT_EQ(store->count({&key, 1}), 0);
  EXPECT_FALSE(store->put(chain_block(8, 0), payload_of_key(chain_key(8, 0), kBlock)));
  EXPECT_EQ(store->counters().dropped_failed, 2);
}

// Writers that are killed at any moment leave whole records or none under a name.
TEST_F(SharedStoreTest, KilledWritersLeaveNothingWrong) {
  constexpr int kRounds = 20;
  std::mt19937 random(11);
  open(options()).reset();
  for (int round = 0; round < kRounds; ++round) {
    int begun[2] = {};
    ASSERT_EQ(::pipe2(begun, O_CLOEXEC), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      auto store = SharedStore::open(options());
      for (int64_t depth = 0; store; ++depth) {
        const TierBlock block = chain_block(1000 + static_cast<uint64_t>(round), depth);
        (*store)->put(block, payload_of_key(block.key, kBlock));
        if (depth > 0) continue;
        (*store)->flush();
        if (::write(begun[1], "x", 1) != 1) break;
      }
      ::_exit(1);
    }
    char byte = 0;
    ASSERT_EQ(::read(begun[0], &byte, 1), 1);
    ::close(begun[0]);
    ::close(begun[1]);
    ::usleep(2000 + random() % 30'000);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }
  const auto store = open(options());
  int64_t n_found = 0;
  int64_t n_temporary = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder())) {
    const std::string name = entry.path().filename().string();
    n_temporary += entry.path().extension() == ".tmp" ? 1 : 0;
    if (name.size() != 64) continue;
    BlockKey key;
    for (size_t i = 0; i < key.digest.size(); ++i) {
      key.digest[i] = static_cast<uint8_t>(std::stoi(name.substr(2 * i, 2), nullptr, 16));
    }
    EXPECT_EQ(get(*store, key), TierStatus::kOk) << name;
    ++n_found;
  }
  EXPECT_GT(n_found, kRounds);
  EXPECT_EQ(store->counters().bad, 0);
  EXPECT_EQ(store->counters().n_blocks, n_found);
  // What they were writing goes after an hour.
  if (n_temporary == 0) return;
  shift_us_ = 2 * kHourUs;
  const auto later = open(options());
  for (const auto& entry : fs::recursive_directory_iterator(folder())) {
    EXPECT_NE(entry.path().extension(), ".tmp");
  }
}

}  // namespace
}  // namespace fathom
