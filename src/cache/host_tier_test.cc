// Goal: the tier brings what was put or nothing, stays in its bound, keeps what costs most and
// never a block without those before it. Method: small cases by hand; random operations compared
// with a plain map after every step.
#include "cache/host_tier.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace fathom {
namespace {

constexpr int64_t kBytes = 300;

BlockKey key_of(int64_t chain, int64_t depth) {
  BlockKey key;
  std::memcpy(key.digest.data(), &chain, sizeof(chain));
  std::memcpy(key.digest.data() + sizeof(chain), &depth, sizeof(depth));
  return key;
}

TierBlock block_of(int64_t chain, int64_t depth, double cost = 1) {
  return {.key = key_of(chain, depth),
          .parent = key_of(chain, depth - 1),
          .first_position = depth * 64,
          .cost = cost};
}

std::vector<BlockKey> keys_of(int64_t chain, int64_t n) {
  std::vector<BlockKey> keys;
  for (int64_t depth = 0; depth < n; ++depth) keys.push_back(key_of(chain, depth));
  return keys;
}

std::vector<std::byte> payload_of(uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(kBytes);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

// Room for n blocks and no more.
int64_t room(int64_t n) { return n * (kBytes + HostTier::overhead_bytes()) + kBytes; }

TierStatus read(HostTier& tier, const BlockKey& key, std::vector<std::byte>& into) {
  const auto ticket = tier.get(key, into);
  const auto ended = tier.poll();
  EXPECT_EQ(ended.size(), 1U);
  EXPECT_EQ(ended.at(0).ticket, *ticket);
  return ended.at(0).status;
}

TEST(HostTier, BringsWhatWasPutAtTheTimeOfThePut) {
  HostTier tier(room(4));
  std::vector<std::byte> bytes = payload_of(1);
  ASSERT_TRUE(tier.put(block_of(1, 0), bytes));
  bytes.assign(kBytes, std::byte{0});  // the copy is the tier's
  std::vector<std::byte> into(kBytes);
  EXPECT_EQ(read(tier, key_of(1, 0), into), TierStatus::kOk);
  EXPECT_EQ(into, payload_of(1));
  EXPECT_EQ(read(tier, key_of(1, 1), into), TierStatus::kMissing);
  EXPECT_TRUE(tier.put(block_of(1, 0), bytes));
  EXPECT_EQ(tier.counters().found_again, 1);
  tier.forget(key_of(1, 0));
  EXPECT_EQ(tier.count(keys_of(1, 1)), 0);
  EXPECT_EQ(tier.counters().held_bytes, 0);
  tier.check();
}

TEST(HostTier, EveryFlippedBitIsFoundAndTheBlockIsNotFoundAgain) {
  HostTier tier(room(4));
  const std::vector<std::byte> bytes = payload_of(2);
  for (size_t bit = 0; bit < kBytes * 8; bit += 7) {
    ASSERT_TRUE(tier.put(block_of(1, 0), bytes));
    tier.payload_of(key_of(1, 0))[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
    std::vector<std::byte> into(kBytes, std::byte{9});
    EXPECT_EQ(read(tier, key_of(1, 0), into), TierStatus::kBad) << bit;
    EXPECT_EQ(into, std::vector<std::byte>(kBytes, std::byte{9}));
    EXPECT_EQ(tier.count(keys_of(1, 1)), 0);
  }
  std::vector<std::byte> shorter(kBytes - 1);
  ASSERT_TRUE(tier.put(block_of(1, 0), bytes));
  EXPECT_EQ(read(tier, key_of(1, 0), shorter), TierStatus::kBad);
  tier.check();
}

TEST(HostTier, TheCheapestGoesFirstAndNeverBeforeThoseBehindIt) {
  HostTier tier(room(10));
  for (int64_t depth = 0; depth < 5; ++depth) tier.put(block_of(1, depth, 1), payload_of(1));
  for (int64_t depth = 0; depth < 5; ++depth) tier.put(block_of(2, depth, 9), payload_of(2));
  for (int64_t depth = 0; depth < 3; ++depth) tier.put(block_of(3, depth, 9), payload_of(3));
  EXPECT_EQ(tier.count(keys_of(1, 5)), 2);
  EXPECT_EQ(tier.count(keys_of(2, 5)), 5);
  EXPECT_EQ(tier.count(keys_of(3, 5)), 3);
  EXPECT_EQ(tier.counters().evicted_size, 3);
  tier.check();
  EXPECT_FALSE(HostTier(kBytes).put(block_of(1, 0), payload_of(1)));
}

// A block that is used often outlives one of the same cost, until the floor has passed it.
TEST(HostTier, UseCounts) {
  HostTier tier(room(3));
  for (int64_t chain = 0; chain < 3; ++chain) tier.put(block_of(chain, 0), payload_of(1));
  std::vector<std::byte> into(kBytes);
  for (int i = 0; i < 3; ++i) read(tier, key_of(0, 0), into);
  int64_t chain = 3;
  while (tier.count(keys_of(0, 1)) == 1 && chain < 100) {
    tier.put(block_of(chain++, 0), payload_of(1));
  }
  EXPECT_GT(chain, 5);
  EXPECT_LT(chain, 20);
  tier.check();
}

void random_life(uint32_t seed) {
  std::mt19937 random(seed);
  HostTier tier(room(12));
  std::map<BlockKey, std::vector<std::byte>> put;
  for (uint32_t i = 0; i < 500; ++i) {
    const auto chain = static_cast<int64_t>(random() % 4);
    const auto depth = static_cast<int64_t>(random() % 6);
    const BlockKey key = key_of(chain, depth);
    const bool there = tier.count({&key, 1}) == 1;
    if (random() % 2 == 0) {
      const std::vector<std::byte> bytes = payload_of(i);
      if (!there) put[key] = bytes;
      tier.put(block_of(chain, depth, 1 + static_cast<double>(random() % 9)), bytes);
    } else if (random() % 8 == 0) {
      tier.forget(key);
      ASSERT_EQ(tier.count({&key, 1}), 0);
    } else {
      std::vector<std::byte> into(kBytes);
      ASSERT_EQ(read(tier, key, into), there ? TierStatus::kOk : TierStatus::kMissing);
      ASSERT_TRUE(!there || into == put.at(key));
    }
    tier.check();
  }
  EXPECT_GT(tier.counters().evicted_size, 0);
  EXPECT_GT(tier.counters().hits, 20);
}

TEST(HostTier, RandomOperationsAgreeWithAPlainMap) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    random_life(seed);
    if (testing::Test::HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace fathom
