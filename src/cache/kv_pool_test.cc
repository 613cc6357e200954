// Goal: ids are handed out once. Method: random allocate and release against a set.
#include "cache/kv_pool.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace fathom {
namespace {

KvSpec tiny_spec() {
  return *KvSpec::make({.n_layers = 2,
                        .head_dim = 32,
                        .index_head_dim = 32,
                        .sliding_window = 4,
                        .sources = {{0, 2}, {1, 1}}});
}

TEST(KvPool, NeverHandsOutABlockTwice) {
  HostMemory memory;
  auto pool = KvPool::make(tiny_spec(), 5, memory);
  ASSERT_TRUE(pool);
  std::set<BlockId> held;
  std::mt19937 random(7);
  for (int i = 0; i < 1000; ++i) {
    if (random() % 2 == 0) {
      const auto id = pool->allocate();
      ASSERT_EQ(id.has_value(), held.size() < 5);
      if (id) {
        ASSERT_TRUE(held.insert(*id).second);
      }
    } else if (!held.empty()) {
      pool->release(*held.begin());
      held.erase(held.begin());
    }
    ASSERT_EQ(pool->n_free(), 5 - static_cast<int64_t>(held.size()));
  }
}

TEST(KvPool, AFullPoolNamesItself) {
  HostMemory memory;
  auto pool = WindowPool::make(tiny_spec(), 1, memory);
  ASSERT_TRUE(pool);
  ASSERT_TRUE(pool->allocate());
  EXPECT_EQ(pool->allocate().error().message, "window slots: all 1 are in use");
}

TEST(KvPool, RefusesMoreMemoryThanThereIs) {
  HostMemory memory;
  const auto pool = KvPool::make(tiny_spec(), int64_t{1} << 45, memory);
  ASSERT_FALSE(pool);
  EXPECT_EQ(pool.error().code, ErrorCode::kExhausted);
}

}  // namespace
}  // namespace fathom
