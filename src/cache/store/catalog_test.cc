// Goal: the sums that eviction stands on are right, and it takes what is worth least. Method:
// random operations, recounted by check(); small cases by hand.
#include "cache/store/catalog.h"

#include <random>

#include "cache/store/store_testing.h"

namespace fathom {
namespace {

CatalogEntry entry_in(uint32_t segment, double cost) {
  CatalogEntry entry;
  entry.place = {segment, 1};
  entry.payload_bytes = 1000;
  entry.created_us = 10;
  entry.cost = cost;
  return entry;
}

TEST(StoreCatalog, CountsRightlyThroughRandomOperations) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  Catalog catalog;
  std::map<BlockKey, RecordPlace> model;
  for (uint32_t number = 1; number <= 8; ++number) catalog.add_segment(number, 4096);
  for (int64_t i = 0; i < 3000; ++i) {
    const BlockKey key = chain_key(1, static_cast<int64_t>(random() % 200));
    const auto segment = static_cast<uint32_t>(1 + random() % 8);
    const bool there = model.contains(key);
    ASSERT_EQ(catalog.find(key) != nullptr, there);
    switch (random() % 5) {
      case 0:
      case 1:
        if (there) break;
        catalog.add(key, entry_in(segment, static_cast<double>(random() % 100)));
        model[key] = {segment, 1};
        break;
      case 2:
        EXPECT_EQ(catalog.remove(key), there);
        model.erase(key);
        break;
      case 3:
        catalog.use(key);
        catalog.raise_floor(static_cast<double>(i) * 1e-4);
        break;
      default:
        if (!there) break;
        catalog.move(key, {segment, 2});
        model[key] = {segment, 2};
    }
    catalog.set_file_bytes(segment, static_cast<int64_t>(random() % 100) * 4096);
    if (i % 100 == 0) catalog.check();
  }
  catalog.check();
  EXPECT_EQ(catalog.n_records(), static_cast<int64_t>(model.size()));
  for (const auto& [key, place] : model) EXPECT_EQ(catalog.find(key)->place, place);
}

TEST(StoreCatalog, TheSegmentWorthLeastAByteGoesFirst) {
  Catalog catalog;
  for (uint32_t number = 1; number <= 4; ++number) catalog.add_segment(number, 8192);
  catalog.add(chain_key(1, 0), entry_in(1, 4));
  catalog.add(chain_key(2, 0), entry_in(2, 3));
  catalog.add(chain_key(3, 0), entry_in(3, 5));
  EXPECT_FALSE(catalog.least().has_value());  // none is sealed
  for (const uint32_t number : {1U, 2U, 3U}) catalog.seal(number);
  EXPECT_EQ(catalog.least(), 2U);
  catalog.use(chain_key(2, 0));
  EXPECT_EQ(catalog.least(), 1U);
  // Dead bytes count nothing.
  catalog.set_file_bytes(3, 16384);
  EXPECT_EQ(catalog.least(), 3U);
  // An empty one is worth nothing, whatever the others are.
  catalog.seal(4);
  EXPECT_EQ(catalog.least(), 4U);
}

TEST(StoreCatalog, WhatIsNotUsedAgainSinks) {
  Catalog catalog;
  catalog.add_segment(1, 8192);
  catalog.add_segment(2, 8192);
  catalog.add(chain_key(1, 0), entry_in(1, 8));
  catalog.use(chain_key(1, 0));
  catalog.raise_floor(1);  // 1 a byte, as if much had gone since
  catalog.add(chain_key(2, 0), entry_in(2, 8));
  catalog.seal(1);
  catalog.seal(2);
  EXPECT_EQ(catalog.least(), 1U);
}

TEST(StoreCatalog, ASegmentIsOldWhenItsYoungestRecordIs) {
  Catalog catalog;
  catalog.add_segment(1, 8192);
  for (int64_t i = 0; i < 3; ++i) {
    CatalogEntry entry = entry_in(1, 1);
    entry.created_us = 10 * (i + 1);
    catalog.add(chain_key(1, i), entry);
  }
  EXPECT_FALSE(catalog.older_than(1000).has_value());
  catalog.seal(1);
  EXPECT_FALSE(catalog.older_than(30).has_value());
  EXPECT_EQ(catalog.older_than(31), 1U);
  for (int64_t i = 0; i < 3; ++i) catalog.remove(chain_key(1, i));
  EXPECT_EQ(catalog.older_than(0), 1U);
  catalog.remove_segment(1);
  EXPECT_FALSE(catalog.older_than(1000).has_value());
}

}  // namespace
}  // namespace fathom
