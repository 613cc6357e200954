// Goal: a restore hands on each block once, under its index and with its bytes, ends before the
// first one that no tier can bring, and leaves no memory of an ended one in use. Method: tiers in
// virtual time that are slow, lose, damage and refuse; random lives compared with what was put.
#include "cache/prefix_tiers.h"

#include <gtest/gtest.h>

#include <map>

#include "cache/faulty_tier_testing.h"

namespace fathom {
namespace {

constexpr int64_t kBytes = 64;
constexpr int64_t kRoom = 1 << 20;

std::vector<BlockKey> chain_of(int32_t first, int64_t n_blocks) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < n_blocks * 64; ++i) tokens.push_back(first + static_cast<int32_t>(i));
  KeyChain chain(root_key({}));
  chain.extend(tokens, {});
  return {chain.keys().begin(), chain.keys().end()};
}

std::vector<std::byte> bytes_of(const BlockKey& key) {
  std::vector<std::byte> bytes(kBytes);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(key.digest[i % 32]);
  return bytes;
}

void put(Tier& tier, std::span<const BlockKey> keys) {
  for (size_t i = 0; i < keys.size(); ++i) {
    tier.put({.key = keys[i], .parent = i == 0 ? BlockKey{} : keys[i - 1]}, bytes_of(keys[i]));
  }
}

// What one restore was handed, checked as it comes.
struct Taker {
  void operator()(const RestoredBlock& block) {
    const auto& keys = wanted.at(block.restore);
    EXPECT_TRUE(
        std::ranges::equal(block.bytes, bytes_of(keys.at(static_cast<size_t>(block.index)))));
    EXPECT_TRUE(got.insert({block.restore, block.index}).second);
    ++by_tier[block.tier];
  }
  std::map<RestoreId, std::vector<BlockKey>> wanted;
  std::set<std::pair<RestoreId, int64_t>> got;
  std::map<size_t, int64_t> by_tier;
};

TEST(PrefixTiers, ReadsEachBlockFromTheFirstTierThatHasIt) {
  FaultyTier fast(kRoom, {});
  FaultyTier slow(kRoom, {.delay_us_max = 100});
  const std::vector<BlockKey> keys = chain_of(0, 10);
  put(fast.kept(), std::span(keys).first(4));
  put(slow.kept(), std::span(keys).first(9));
  PrefixTiers tiers({&fast, &slow}, kBytes, 64);
  EXPECT_EQ(tiers.count(keys), 9);
  Taker taker;
  const RestoreId id = tiers.begin(keys);
  taker.wanted[id] = keys;
  for (int i = 0; i < 50 && !tiers.progress(id).done; ++i) tiers.poll(100, std::ref(taker));
  EXPECT_EQ(tiers.progress(id).n_ready, 9);
  EXPECT_EQ(taker.by_tier[0], 4);
  EXPECT_EQ(taker.by_tier[1], 5);
  tiers.end(id);
  EXPECT_EQ(tiers.n_restores(), 0);
}

TEST(PrefixTiers, ABlockThatOneTierHasLostComesFromTheNext) {
  FaultyTier fast(kRoom, {});
  FaultyTier slow(kRoom, {});
  const std::vector<BlockKey> keys = chain_of(0, 6);
  put(fast.kept(), keys);
  put(slow.kept(), std::span(keys).first(5));
  for (const size_t i : {2, 5}) fast.kept().payload_of(keys[i])[7] ^= std::byte{1};
  PrefixTiers tiers({&fast, &slow}, kBytes, 2);
  Taker taker;
  const RestoreId id = tiers.begin(keys);
  taker.wanted[id] = keys;
  for (int i = 0; i < 10; ++i) tiers.poll(0, std::ref(taker));
  EXPECT_TRUE(tiers.progress(id).done);
  EXPECT_EQ(tiers.progress(id).n_ready, 5);
  EXPECT_EQ(taker.by_tier[1], 1);
  EXPECT_EQ(tiers.counters().lost, 1);
  tiers.end(id);
}

// One block of the short one comes for one of the long one.
TEST(PrefixTiers, ALongRestoreDoesNotHoldUpAShortOne) {
  FaultyTier tier(kRoom, {.max_reads = 4});
  const std::vector<BlockKey> large = chain_of(0, 200);
  const std::vector<BlockKey> small = chain_of(500, 5);
  put(tier.kept(), large);
  put(tier.kept(), small);
  PrefixTiers tiers({&tier}, kBytes, 64);
  Taker taker;
  const RestoreId first = tiers.begin(large);
  const RestoreId second = tiers.begin(small);
  taker.wanted = {{first, large}, {second, small}};
  while (!tiers.progress(second).done) tiers.poll(0, std::ref(taker));
  EXPECT_LT(taker.got.size(), 20U);
  tiers.end(second);
  tiers.end(first);
}

// The tier writes where it was told, also after the restore has ended.
TEST(PrefixTiers, MemoryOfReadsLivesUntilTheyEnd) {
  FaultyTier tier(kRoom, {.delay_us_max = 1'000'000});
  const std::vector<BlockKey> keys = chain_of(0, 20);
  put(tier.kept(), keys);
  {
    PrefixTiers tiers({&tier}, kBytes, 64);
    tiers.end(tiers.begin(keys));
    EXPECT_EQ(tiers.n_reads(), 20);
    tiers.poll(0, [](const RestoredBlock&) { FAIL(); });
  }
  EXPECT_EQ(tier.n_reads(), 0);
}

// Blocks that were ready at the ends of restores, and those that were lost.
std::pair<int64_t, int64_t> live(uint64_t seed, std::span<const std::vector<BlockKey>> chains) {
  std::mt19937_64 random(seed);
  const auto below = [&](uint64_t n) { return static_cast<int64_t>(random() % n); };
  FaultyTier fast(6000 + below(9000), {.lose_rate = 0.02, .bad_rate = 0.02, .seed = seed});
  FaultyTier slow(kRoom, {.drop_rate = 0.05,
                          .lose_rate = 0.05,
                          .bad_rate = 0.05,
                          .late_rate = 0.01,
                          .delay_us_max = 50,
                          .max_reads = 1 + below(9),
                          .seed = seed + 1});
  PrefixTiers tiers({&fast, &slow}, kBytes, 1 + below(20));
  Taker taker;
  std::vector<RestoreId> open;
  int64_t n_ready = 0;
  for (int64_t now_us = 0; now_us < 3000; now_us += 10) {
    slow.set_time(now_us);
    const std::vector<BlockKey>& keys = chains[static_cast<size_t>(below(3))];
    if (below(4) == 0) {
      const size_t n_tiers = static_cast<size_t>(1 + below(2));
      for (size_t i = 0; i < keys.size(); ++i) {
        tiers.put({.key = keys[i], .parent = i == 0 ? BlockKey{} : keys[i - 1]}, bytes_of(keys[i]),
                  n_tiers);
      }
    } else if (open.size() < 6) {
      open.push_back(tiers.begin(keys));
      taker.wanted[open.back()] = keys;
    }
    tiers.poll(0, std::ref(taker));
    for (size_t i = 0; i < open.size();) {
      const RestoreProgress progress = tiers.progress(open[i]);
      for (int64_t index = 0; index < progress.n_ready; ++index) {
        EXPECT_TRUE(taker.got.count({open[i], index}));
      }
      if (!progress.done && below(60) != 0) {
        ++i;
        continue;
      }
      n_ready += progress.n_ready;
      tiers.end(open[i]);
      open.erase(open.begin() + static_cast<ptrdiff_t>(i));
    }
    fast.kept().check();
  }
  EXPECT_EQ(tiers.counters().restored, static_cast<int64_t>(taker.got.size()));
  return {n_ready, tiers.counters().lost};
}

TEST(PrefixTiers, RandomLivesHandOnWhatWasPut) {
  const std::vector<BlockKey> chains[] = {chain_of(0, 12), chain_of(1000, 12), chain_of(2000, 12)};
  int64_t n_ready = 0;
  int64_t n_lost = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    const auto [ready, lost] = live(seed, chains);
    n_ready += ready;
    n_lost += lost;
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(n_ready, 10'000);
  EXPECT_GT(n_lost, 400);
}

}  // namespace
}  // namespace fathom
