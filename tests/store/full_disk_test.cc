// Goal: on a disk that is really full the store loses what it cannot write and nothing else, and
// never brings a wrong byte. Method: a file system of 64 MiB, a store whose bound is far above it,
// blocks of the released model's size; then the room goes to somebody else, and comes back.
#include <fstream>

#include "base/small_disk_testing.h"
#include "cache/store/audit.h"
#include "cache/store/store_testing.h"

namespace fathom {
namespace {

constexpr int64_t kDiskBytes = int64_t{64} << 20;
constexpr int64_t kBlockBytes = 56'960;
constexpr int64_t kDepth = 40;  // blocks of a chain

class FullDiskTest : public FolderTest {
 protected:
  void SetUp() override {
    if (!disk_.mounted()) GTEST_SKIP() << "this user may not mount";
  }

  StoreOptions options() const {
    StoreOptions options;
    options.folder = folder() + "/store";
    options.identity.block_bytes = kBlockBytes;
    options.segment_bytes = int64_t{4} << 20;
    options.max_bytes = 16 * kDiskBytes;
    options.queue_bytes = int64_t{4} << 20;
    options.pause_us = 0;
    return options;
  }

  int64_t free_bytes() const {
    return static_cast<int64_t>(std::filesystem::space(folder()).available);
  }

  // All but so many bytes of what is free go to a file of somebody else's.
  void take_room(int64_t but) const {
    const std::string megabyte(size_t{1} << 20, 'x');
    std::ofstream file(folder() + "/other", std::ios::binary | std::ios::app);
    while (free_bytes() > but + static_cast<int64_t>(megabyte.size()))
      file << megabyte << std::flush;
  }

  static void put_chain(DiskStore& store, uint64_t chain) {
    for (int64_t depth = 0; depth < kDepth; ++depth) {
      const TierBlock block = chain_block(chain, depth);
      store.put(block, payload_of_key(block.key, kBlockBytes));
    }
    store.flush();
  }

  // How many of the chain come; each with the bytes that were put.
  static int64_t hits(DiskStore& store, uint64_t chain) {
    int64_t n = 0;
    for (int64_t depth = 0; depth < kDepth; ++depth) {
      const BlockKey key = chain_key(chain, depth);
      std::vector<std::byte> into(kBlockBytes, std::byte{0xa5});
      EXPECT_TRUE(store.get(key, into).has_value());
      std::vector<TierCompletion> ended;
      while (ended.empty()) ended = store.poll(1'000'000);
      const bool ok = ended[0].status == TierStatus::kOk;
      const auto untouched = std::vector<std::byte>(kBlockBytes, std::byte{0xa5});
      EXPECT_EQ(into, ok ? payload_of_key(key, kBlockBytes) : untouched);
      n += ok ? 1 : 0;
    }
    return n;
  }

 private:
  const SmallDisk disk_{folder(), kDiskBytes};
};

TEST_F(FullDiskTest, LosesWhatItCannotWriteAndNothingElse) {
  constexpr uint64_t kChains = 60;  // 137 MB
  {
    auto store = DiskStore::open(options());
    ASSERT_TRUE(store) << store.error().message;
    for (uint64_t chain = 0; chain < kChains; ++chain) put_chain(**store, chain);
    const TierCounters counters = (*store)->counters();
    EXPECT_EQ((*store)->broken(), "");
    EXPECT_GT(counters.dropped_failed, 0);             // the disk was full
    EXPECT_LT(counters.max_bytes, kDiskBytes);         // which the store has seen
    EXPECT_GT(counters.held_bytes, kDiskBytes / 2);    // and still uses the disk
    EXPECT_GT(counters.kept, (kChains - 8) * kDepth);  // it made room for what came later
    EXPECT_EQ(hits(**store, kChains - 1), kDepth);
    for (uint64_t chain = 0; chain < kChains; ++chain) hits(**store, chain);
    EXPECT_EQ((*store)->counters().bad, 0);
    // Somebody else takes what is left: reads go on, and so do writes into what the store gives up.
    take_room(0);
    put_chain(**store, 1000);
    put_chain(**store, 1001);
    hits(**store, kChains - 1);
    EXPECT_EQ((*store)->counters().bad, 0);
  }
  std::filesystem::remove(folder() + "/other");
  const auto report = audit_store(options().folder, {});
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(report->problems, std::vector<std::string>());
  auto store = DiskStore::open(options());
  ASSERT_TRUE(store) << store.error().message;
  EXPECT_EQ((*store)->report().n_lost, 0);
  put_chain(**store, 2000);
  EXPECT_EQ(hits(**store, 2000), kDepth);
}

}  // namespace
}  // namespace fathom
