// Goal: the index says what was committed, and an unsound one is known as such. Method: random
// changes against a map, through reopenings; random damage to its file.
#include "cache/store/index.h"

#include <filesystem>
#include <random>

#include "base/file.h"
#include "cache/store/store_testing.h"

namespace fathom {
namespace {

constexpr int64_t kMaxBytes = int64_t{64} << 20;

IndexRow row_at(const RecordPlace& place, uint32_t n_uses) {
  IndexRow row;
  row.head.block = chain_block(place.segment, place.page);
  row.head.block.cost = place.page * 0.5;
  row.head.payload_bytes = 1000 + place.page;
  row.head.created_us = 5;
  row.head.place = place;
  row.n_uses = n_uses;
  return row;
}

class StoreIndexTest : public FolderTest {
 protected:
  StoreIndexTest() { std::filesystem::create_directory(folder_); }
  std::string path() const { return folder() + "/index.mdb"; }

  using Model = std::map<RecordPlace, uint32_t>;  // uses by place
  static void expect_same(const std::vector<IndexRow>& rows, const Model& model) {
    ASSERT_EQ(rows.size(), model.size());
    auto at = model.begin();
    for (const IndexRow& row : rows) {
      const IndexRow wanted = row_at(at->first, at->second);
      EXPECT_EQ(row.head.place, at->first);
      EXPECT_EQ(row.n_uses, at->second);
      EXPECT_EQ(row.head.block.key, wanted.head.block.key);
      EXPECT_EQ(row.head.block.parent, wanted.head.block.parent);
      EXPECT_EQ(row.head.block.cost, wanted.head.block.cost);
      EXPECT_EQ(row.head.payload_bytes, wanted.head.payload_bytes);
      ++at;
    }
  }
};

TEST_F(StoreIndexTest, HoldsWhatWasCommitted) {
  std::mt19937 random(1);
  Model model;
  for (int round = 0; round < 12; ++round) {
    auto index = StoreIndex::open(path(), kMaxBytes);
    ASSERT_TRUE(index) << index.error().message;
    expect_same(*index->rows(), model);
    StoreIndex::Change change;
    for (const auto& [place, uses] : model) {
      if (random() % 4 == 0) change.remove.push_back(place);
    }
    change.remove.push_back({99, 1});  // is not there
    if (round % 3 == 2) change.remove_segments.push_back(random() % 6);
    for (const RecordPlace& place : change.remove) model.erase(place);
    for (const uint32_t segment : change.remove_segments) {
      std::erase_if(model, [&](const auto& item) { return item.first.segment == segment; });
    }
    for (int i = 0; i < 400; ++i) {
      const RecordPlace place = {static_cast<uint32_t>(random() % 6),
                                 static_cast<uint32_t>(random() % 5000)};
      if (!model.emplace(place, static_cast<uint32_t>(i)).second) continue;
      change.add.push_back(row_at(place, static_cast<uint32_t>(i)));
    }
    for (auto& [place, uses] : model) {
      if (random() % 3 > 0) continue;
      uses += 1000;
      change.n_uses.emplace_back(place, uses);
    }
    change.n_uses.emplace_back(RecordPlace{99, 2}, 7);  // is not there, and stays away
    ASSERT_TRUE(index->commit(change));
    expect_same(*index->rows(), model);
    Model of_two;
    for (const auto& item : model) {
      if (item.first.segment == 2) of_two.insert(item);
    }
    expect_same(*index->rows_of(2), of_two);
  }
}

TEST_F(StoreIndexTest, RefusesToGrowAboveItsBoundAndKeepsWhatItHas) {
  auto index = StoreIndex::open(path(), 128 * 1024);
  ASSERT_TRUE(index);
  Model model;
  Result<void> result;
  for (uint32_t round = 0; result && round < 1000; ++round) {
    StoreIndex::Change change;
    Model added;
    for (uint32_t page = 1; page <= 20; ++page) added.emplace(RecordPlace{1 + round, page}, page);
    for (const auto& [place, uses] : added) change.add.push_back(row_at(place, uses));
    result = index->commit(change);
    if (result) model.merge(added);
  }
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kExhausted);
  expect_same(*index->rows(), model);
}

TEST_F(StoreIndexTest, IsReadRightlyOrRefusedWhateverBitIsTurned) {
  Model model;
  {
    auto index = StoreIndex::open(path(), kMaxBytes);
    ASSERT_TRUE(index);
    for (uint32_t round = 0; round < 30; ++round) {
      StoreIndex::Change change;
      for (uint32_t page = 1; page <= 10; ++page) {
        const RecordPlace place = {1 + round / 10, round * 10 + page};
        change.add.push_back(row_at(place, page));
        model.emplace(place, page);
      }
      if (round == 25) change.remove_segments.push_back(1);
      ASSERT_TRUE(index->commit(change));
    }
    std::erase_if(model, [](const auto& item) { return item.first.segment == 1; });
    expect_same(*index->rows(), model);
  }
  const std::string sound = *read_file(path());
  std::mt19937_64 random(7);
  int n_refused = 0;
  int n_opened = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string damaged = sound;
    const size_t bit = random() % (8 * damaged.size());
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    const auto bytes = std::as_bytes(std::span(damaged));
    if (!check_index_file(bytes)) {
      ++n_refused;
      continue;
    }
    if (++n_opened > 100) continue;
    std::filesystem::remove(path());
    std::ofstream(path(), std::ios::binary) << damaged;
    auto index = StoreIndex::open(path(), kMaxBytes);
    ASSERT_TRUE(index) << index.error().message;
    const auto rows = index->rows();
    if (!rows) continue;
    // A turned bit of a transaction's number may bring back the state before the last one.
    if (rows->size() == model.size()) expect_same(*rows, model);
    EXPECT_GE(rows->size() + 1, model.size()) << "bit " << bit;
    StoreIndex::Change change;
    for (uint32_t page = 1; page < 50; ++page) change.add.push_back(row_at({77, page}, 0));
    if (!rows->empty()) change.remove.push_back(rows->front().head.place);
    ASSERT_TRUE(index->commit(change));
    EXPECT_EQ(index->rows_of(77)->size(), 49U) << "bit " << bit;
  }
  EXPECT_GT(n_refused, 50);
  EXPECT_GT(n_opened, 50);
}

TEST_F(StoreIndexTest, IsRefusedWhereItEndsEarly) {
  {
    auto index = StoreIndex::open(path(), kMaxBytes);
    StoreIndex::Change change;
    for (uint32_t page = 1; page < 300; ++page) change.add.push_back(row_at({1, page}, 0));
    ASSERT_TRUE(index->commit(change));
  }
  const std::string sound = *read_file(path());
  ASSERT_TRUE(check_index_file(std::as_bytes(std::span(sound))));
  for (size_t size = 0; size < sound.size(); size += 512) {
    EXPECT_FALSE(check_index_file(std::as_bytes(std::span(sound).first(size)))) << size;
  }
}

}  // namespace
}  // namespace fathom
