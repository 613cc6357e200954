// Goal: a block is never lost, shared by mistake, evicted while pinned, or returned for a key that
// it was not computed for. Method: random operations, each block stamped with what it holds,
// compared with a plain map after every step; and small cases by hand.
#include "cache/prefix_cache.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>

namespace fathom {
namespace {

KvSpec tiny_spec() {
  return *KvSpec::make({.n_layers = 1,
                        .head_dim = 32,
                        .index_head_dim = 32,
                        .sliding_window = 4,
                        .sources = {{0, 1}}});
}

// One pool and one cache, and sequences whose blocks are stamped with the digest of their key.
struct Fixture {
  explicit Fixture(int64_t n_blocks, BlockCost cost = {})
      : pool(*KvPool::make(tiny_spec(), n_blocks, memory)), cache(pool, memory, cost) {}

  uint8_t* bytes(BlockId id) { return pool.base() + static_cast<int64_t>(id) * pool.block_bytes(); }
  void stamp(BlockId id, const BlockKey& key) { std::memcpy(bytes(id), &key, sizeof(key)); }
  bool holds(BlockId id, const BlockKey& key) {
    return std::memcmp(bytes(id), &key, sizeof(key)) == 0;
  }

  // Computes what the cache lacks and publishes all.
  BlockLease fill(const std::vector<BlockKey>& keys) {
    BlockLease lease = cache.match(keys);
    EXPECT_TRUE(cache.grow(lease, static_cast<int64_t>(keys.size())));
    for (size_t i = lease.shared.size(); i < keys.size(); ++i) stamp(lease.blocks[i], keys[i]);
    cache.publish(lease, keys);
    return lease;
  }

  HostMemory memory;
  KvPool pool;
  PrefixCache cache;
};

// Keys of the path that `branch` names: one letter a block.
const std::vector<BlockKey>& path(const std::string& branch) {
  static std::map<std::string, std::vector<BlockKey>> known;
  std::vector<BlockKey>& keys = known[branch];
  if (!keys.empty()) return keys;
  BlockKey parent = {};
  for (const char letter : branch) {
    const std::vector<int32_t> ids(static_cast<size_t>(kBlockTokens), letter);
    parent = next_key(parent, StateGrade::kExact, ids, 0, {});
    keys.push_back(parent);
  }
  return keys;
}

TEST(PrefixCache, MatchesAtAnyBlock) {
  Fixture f(8);
  BlockLease lease = f.fill(path("abcde"));
  f.cache.release(lease);
  for (const auto& [branch, want] : std::map<std::string, int64_t>{
           {"", 0}, {"a", 1}, {"abc", 3}, {"abcdef", 5}, {"abx", 2}, {"x", 0}}) {
    BlockLease hit = f.cache.match(path(branch));
    EXPECT_EQ(hit.n_blocks(), want) << branch;
    f.cache.release(hit);
  }
}

TEST(PrefixCache, PublishingTellsWhatWasNew) {
  Fixture f(8);
  BlockLease first = f.cache.match(path("abc"));
  ASSERT_TRUE(f.cache.grow(first, 3));
  BlockLease second = f.cache.match(path("abcd"));
  ASSERT_TRUE(f.cache.grow(second, 4));
  EXPECT_EQ(f.cache.publish(first, path("abc")), 3);
  EXPECT_EQ(f.cache.publish(second, path("abcd")), 1);
  EXPECT_EQ(f.cache.publish(second, path("abcd")), 0);
  f.cache.release(first);
  f.cache.release(second);
}

TEST(PrefixCache, ALeaseIsCutToOwnBlocksOfItsFirstOnes) {
  Fixture f(8);
  BlockLease lease = f.fill(path("ab"));
  ASSERT_TRUE(f.cache.grow(lease, 7));
  f.cache.cut(lease, 4);
  EXPECT_EQ(lease.n_blocks(), 4);
  EXPECT_EQ(f.cache.available(), 4);
  f.cache.cut(lease, 2);
  const BlockLease* const leases[] = {&lease};
  f.cache.check(leases);
  f.cache.release(lease);
  EXPECT_EQ(f.cache.available(), 8);
}

TEST(PrefixCache, APinnedPathIsNeverEvicted) {
  Fixture f(4);
  BlockLease pinned = f.fill(path("abc"));
  BlockLease own;
  EXPECT_TRUE(f.cache.grow(own, 1));
  const Result<void> more = f.cache.grow(own, 2);
  ASSERT_FALSE(more);
  EXPECT_EQ(more.error().code, ErrorCode::kExhausted);
  EXPECT_EQ(own.n_blocks(), 1);
  EXPECT_EQ(f.cache.peek(path("abc")).n_blocks, 3);
  f.cache.release(pinned);
  EXPECT_TRUE(f.cache.grow(own, 4));
  EXPECT_EQ(f.cache.peek(path("abc")).n_blocks, 0);
}

TEST(PrefixCache, LeavesGoFirst) {
  Fixture f(4);
  BlockLease lease = f.fill(path("abcd"));
  f.cache.release(lease);
  BlockLease own;
  for (int64_t n = 1; n <= 4; ++n) {
    ASSERT_TRUE(f.cache.grow(own, n));
    EXPECT_EQ(f.cache.peek(path("abcd")).n_blocks, 4 - n);
  }
}

TEST(PrefixCache, WhatCostsLessToRebuildGoesFirstAndUseCounts) {
  Fixture f(6, {.first = 2, .slope = 0.5});
  BlockLease deep = f.fill(path("abcd"));  // its leaf costs 3.5
  BlockLease flat = f.fill(path("x"));     // 2
  BlockLease often = f.fill(path("y"));    // 2, but used again: 4
  f.cache.release(deep);
  f.cache.release(flat);
  f.cache.release(often);
  for (int i = 0; i < 5; ++i) {
    BlockLease again = f.cache.match(path("y"));
    f.cache.release(again);
  }
  BlockLease own;
  ASSERT_TRUE(f.cache.grow(own, 1));
  EXPECT_FALSE(f.cache.contains(path("x").back()));
  ASSERT_TRUE(f.cache.grow(own, 2));
  EXPECT_FALSE(f.cache.contains(path("abcd").back()));
  EXPECT_TRUE(f.cache.contains(path("y").back()));
}

TEST(PrefixCache, PublishingTheSameBlockTwiceKeepsOne) {
  Fixture f(6);
  BlockLease first = f.cache.match(path("ab"));
  BlockLease second = f.cache.match(path("ab"));
  for (BlockLease* lease : {&first, &second}) {
    ASSERT_TRUE(f.cache.grow(*lease, 3));
    for (size_t i = 0; i < 2; ++i) f.stamp(lease->blocks[i], path("ab")[i]);
  }
  f.cache.publish(first, path("ab"));
  f.cache.publish(second, path("ab"));
  EXPECT_EQ(first.blocks[0], second.blocks[0]);
  EXPECT_NE(first.blocks[2], second.blocks[2]);
  EXPECT_EQ(f.pool.n_free(), 2);
  EXPECT_EQ(f.cache.counters().merged, 2);
  const BlockLease* leases[] = {&first, &second};
  f.cache.check(leases);
}

TEST(PrefixCache, AForkSharesFullBlocksAndCopiesThePartialOne) {
  Fixture f(5);
  BlockLease lease = f.fill(path("ab"));
  ASSERT_TRUE(f.cache.grow(lease, 3));
  f.stamp(lease.blocks[2], path("q")[0]);
  auto fork = f.cache.fork(lease, 2 * kBlockTokens + 5);
  ASSERT_TRUE(fork);
  EXPECT_EQ(fork->blocks[1], lease.blocks[1]);
  EXPECT_NE(fork->blocks[2], lease.blocks[2]);
  EXPECT_TRUE(f.holds(fork->blocks[2], path("q")[0]));
  auto edge = f.cache.fork(lease, 2 * kBlockTokens);
  ASSERT_TRUE(edge);
  EXPECT_EQ(edge->n_blocks(), 2);
  BlockLease full;
  ASSERT_TRUE(f.cache.grow(full, 1));
  EXPECT_FALSE(f.cache.fork(lease, 2 * kBlockTokens + 1));
  const BlockLease* leases[] = {&lease, &*fork, &*edge, &full};
  f.cache.check(leases);
}

TEST(PrefixCache, OneOwnersBlocksAreClearedAndNoOthers) {
  Fixture f(12);
  const auto fill = [&](const std::string& branch, uint64_t owner) {
    BlockLease lease = f.cache.match(path(branch));
    lease.owner = owner;
    EXPECT_TRUE(f.cache.grow(lease, static_cast<int64_t>(branch.size())));
    f.cache.publish(lease, path(branch));
    return lease;
  };
  BlockLease one = fill("abc", 1);
  BlockLease fork = *f.cache.fork(one, 2 * kBlockTokens);
  EXPECT_EQ(fork.owner, 1U);
  BlockLease other = fill("xy", 2);
  BlockLease held = fill("abd", 1);
  f.cache.release(one);
  f.cache.release(fork);
  f.cache.release(other);
  EXPECT_EQ(f.cache.nodes_by_owner(), (std::map<uint64_t, int64_t>{{1, 4}, {2, 2}}));
  EXPECT_EQ(f.cache.clear(1), 1);  // "c": the others are pinned
  f.cache.release(held);
  EXPECT_EQ(f.cache.clear(1), 3);
  EXPECT_EQ(f.cache.nodes_by_owner(), (std::map<uint64_t, int64_t>{{2, 2}}));
  EXPECT_EQ(f.cache.clear(), 2);
  EXPECT_EQ(f.cache.counters().cleared, 6);
  EXPECT_EQ(f.cache.counters().evicted, 0);
  EXPECT_EQ(f.pool.n_free(), 12);
}

// The plain model: which content each key stands for is the key itself (blocks are stamped), and
// which keys must be there are those of leases that published them.
class Model {
 public:
  explicit Model(uint32_t seed) : random_(seed), f_(10 + seed % 7, {.first = 1, .slope = 0.2}) {}

  void run(int n_steps) {
    for (int i = 0; i < n_steps; ++i) {
      switch (random_() % 6) {
        case 0:
        case 1:
          open();
          break;
        case 2:
          grow();
          break;
        case 3:
          fork();
          break;
        case 4:
          close();
          break;
        default:
          if (random_() % 20 == 0) clear();
      }
      verify();
    }
    while (!live_.empty()) close();
    clear();
    EXPECT_EQ(f_.pool.n_free(), f_.pool.n_blocks());
  }

 private:
  void clear() {
    const int64_t n_idle = f_.cache.n_idle();
    EXPECT_EQ(f_.cache.clear(), n_idle);
    EXPECT_EQ(f_.cache.n_idle(), 0);
  }

  struct Live {
    std::string branch;  // full blocks
    bool partial = false;
    BlockLease lease;
  };

  std::string random_branch() {
    std::string branch;
    const size_t n = random_() % 6;
    while (branch.size() < n) branch += static_cast<char>('a' + random_() % 2);
    return branch;
  }

  // Computes own blocks of a sequence in order and publishes some of them.
  bool compute(Live& live) {
    const auto keys = path(live.branch);
    const int64_t n = static_cast<int64_t>(keys.size()) + (live.partial ? 1 : 0);
    const int64_t more = n - live.lease.n_blocks();
    const bool fits = more <= f_.cache.available();
    EXPECT_EQ(f_.cache.grow(live.lease, n).has_value(), fits);
    if (!fits) return false;
    for (size_t i = live.lease.shared.size(); i < keys.size(); ++i) {
      f_.stamp(live.lease.blocks[i], keys[i]);
    }
    f_.cache.publish(live.lease, keys);
    return true;
  }

  void open() {
    Live live = {.branch = random_branch(), .partial = random_() % 2 == 0};
    const auto keys = path(live.branch);
    const PrefixCache::Hit peeked = f_.cache.peek(keys);
    live.lease = f_.cache.match(keys);
    EXPECT_EQ(live.lease.n_blocks(), peeked.n_blocks);
    for (size_t i = 0; i < live.lease.blocks.size(); ++i) {
      EXPECT_TRUE(f_.holds(live.lease.blocks[i], keys[i]));
    }
    if (peeked.n_blocks < static_cast<int64_t>(keys.size())) {
      EXPECT_FALSE(f_.cache.contains(keys[static_cast<size_t>(peeked.n_blocks)]));
    }
    if (compute(live)) {
      live_.push_back(std::move(live));
    } else {
      f_.cache.release(live.lease);
    }
  }

  void grow() {
    if (live_.empty()) return;
    Live& live = live_[random_() % live_.size()];
    const Live before = live;
    live.branch += static_cast<char>('a' + random_() % 2);
    live.partial = random_() % 2 == 0;
    if (!compute(live)) live = before;
  }

  void fork() {
    if (live_.empty()) return;
    const Live& live = live_[random_() % live_.size()];
    const int64_t n_tokens =
        static_cast<int64_t>(live.branch.size()) * kBlockTokens + (live.partial ? 9 : 0);
    const bool fits = !live.partial || f_.cache.available() > 0;
    auto lease = f_.cache.fork(live.lease, n_tokens);
    ASSERT_EQ(lease.has_value(), fits);
    if (lease) live_.push_back({live.branch, live.partial, std::move(*lease)});
  }

  void close() {
    if (live_.empty()) return;
    std::swap(live_[random_() % live_.size()], live_.back());
    f_.cache.release(live_.back().lease);
    live_.pop_back();
  }

  void verify() {
    std::vector<const BlockLease*> leases;
    std::set<BlockId> pinned;
    for (const Live& live : live_) {
      leases.push_back(&live.lease);
      const auto keys = path(live.branch);
      EXPECT_EQ(live.lease.shared.size(), keys.size());
      for (size_t i = 0; i < keys.size(); ++i) {
        EXPECT_TRUE(f_.cache.contains(keys[i]));
        EXPECT_TRUE(f_.holds(live.lease.blocks[i], keys[i]));
      }
      pinned.insert(live.lease.blocks.begin(), live.lease.blocks.end());
    }
    EXPECT_EQ(f_.cache.available(), f_.pool.n_blocks() - static_cast<int64_t>(pinned.size()));
    f_.cache.check(leases);
  }

  std::mt19937 random_;
  Fixture f_;
  std::vector<Live> live_;
};

TEST(PrefixCache, RandomOperationsAgreeWithAPlainModel) {
  for (uint32_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Model(seed).run(250);
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace fathom
