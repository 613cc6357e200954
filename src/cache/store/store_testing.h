#pragma once

// For tests of the store: a disk that fails on demand, and a folder with a store in it.

#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/folder_testing.h"
#include "cache/store/block_testing.h"
#include "cache/store/disk_store.h"

namespace fathom {

// Passes everything on to another disk, unless told otherwise.
class FaultyDisk : public Disk {
 public:
  explicit FaultyDisk(Disk& disk) : disk_(disk) {}

  // Asked for every transfer. kPass: it happens. Otherwise nothing happens but the first `bytes` of
  // it, and `result` is what the caller hears.
  struct Verdict {
    bool pass = true;
    int64_t bytes = 0;
    int64_t result = 0;
  };
  std::function<Verdict(const IoRequest& request)> judge;
  std::function<bool(const std::string& path)> refuses_remove;
  std::function<bool(const std::string& path)> refuses_open;

  std::unique_ptr<IoQueue> queue(int depth) override {
    return std::make_unique<Queue>(*this, disk_.queue(depth));
  }
  Result<FileDescriptor> open(const std::string& path, bool create) override {
    if (refuses_open && refuses_open(path)) return io_error(path + ": cannot open");
    return disk_.open(path, create);
  }
  Result<int64_t> size(const std::string& path) override { return disk_.size(path); }
  Result<void> truncate(const std::string& path, int64_t bytes) override {
    return disk_.truncate(path, bytes);
  }
  Result<void> remove(const std::string& path) override {
    if (refuses_remove && refuses_remove(path)) return io_error(path + ": cannot remove");
    return disk_.remove(path);
  }
  Result<void> sync_folder(const std::string& folder) override { return disk_.sync_folder(folder); }
  std::string road() const override { return disk_.road() + ", with faults"; }

 private:
  class Queue : public IoQueue {
   public:
    Queue(FaultyDisk& owner, std::unique_ptr<IoQueue> queue)
        : owner_(owner), queue_(std::move(queue)) {}

    void submit(const IoRequest& request) override {
      const Verdict verdict = owner_.judge ? owner_.judge(request) : Verdict{};
      if (verdict.pass) {
        queue_->submit(request);
        return;
      }
      IoRequest part = request;
      part.bytes = request.bytes.first(static_cast<size_t>(verdict.bytes));
      if (!part.bytes.empty()) {
        part.tag = kPart;
        queue_->submit(part);
      }
      judged_.push_back({request.tag, verdict.result});
    }
    IoCompletion wait() override {
      if (!judged_.empty()) {
        const IoCompletion completion = judged_.front();
        judged_.pop_front();
        return completion;
      }
      const IoCompletion completion = queue_->wait();
      return completion.tag == kPart ? wait() : completion;
    }

   private:
    static constexpr uint64_t kPart = UINT64_MAX;
    FaultyDisk& owner_;
    std::unique_ptr<IoQueue> queue_;
    std::deque<IoCompletion> judged_;
  };

  Disk& disk_;
};

class StoreTest : public FolderTest {
 protected:
  static constexpr int64_t kBlockBytes = 3000;  // a record of one page

  StoreOptions options() const {
    StoreOptions options;
    options.folder = folder();
    options.identity.weights.fill(1);
    options.identity.spec.fill(2);
    options.identity.block_bytes = kBlockBytes;
    options.key = key_;
    options.segment_bytes = 16 * kPageBytes;
    options.max_bytes = int64_t{64} << 20;
    options.queue_bytes = 64 * kPageBytes;
    options.pause_us = 0;
    options.unix_us = [this] { return clock_us_.load(); };
    return options;
  }

  static std::unique_ptr<DiskStore> open(const StoreOptions& options) {
    auto store = DiskStore::open(options);
    EXPECT_TRUE(store) << store.error().message;
    return store ? std::move(*store) : nullptr;
  }

  static bool put(DiskStore& store, const TierBlock& block) {
    return store.put(block, payload_of_key(block.key, kBlockBytes));
  }
  // Puts blocks [begin, end) of a chain and waits until they are safe.
  static void put_chain(DiskStore& store, uint64_t chain, int64_t begin, int64_t end) {
    for (int64_t depth = begin; depth < end; ++depth) {
      if (!put(store, chain_block(chain, depth))) {
        store.flush();
        EXPECT_TRUE(put(store, chain_block(chain, depth)));
      }
    }
    store.flush();
  }
  // The status of one read; a right one has the bytes of the key, any other has left the buffer.
  static TierStatus get(DiskStore& store, const BlockKey& key) {
    std::vector<std::byte> into(kBlockBytes, std::byte{0xa5});
    const std::vector<std::byte> untouched = into;
    const auto ticket = store.get(key, into);
    EXPECT_TRUE(ticket.has_value());
    std::vector<TierCompletion> ended;
    while (ended.empty()) ended = store.poll(1'000'000);
    EXPECT_EQ(ended.size(), 1U);
    EXPECT_EQ(ended[0].ticket, *ticket);
    const bool ok = ended[0].status == TierStatus::kOk;
    EXPECT_EQ(into, ok ? payload_of_key(key, kBlockBytes) : untouched);
    return ended[0].status;
  }
  static int64_t hits(DiskStore& store, uint64_t chain, int64_t n) {
    int64_t found = 0;
    for (int64_t depth = 0; depth < n; ++depth) {
      found += get(store, chain_key(chain, depth)) == TierStatus::kOk ? 1 : 0;
    }
    return found;
  }
  static std::vector<BlockKey> chain_keys(uint64_t chain, int64_t n) {
    std::vector<BlockKey> keys;
    for (int64_t depth = 0; depth < n; ++depth) keys.push_back(chain_key(chain, depth));
    return keys;
  }
  std::string path(const std::string& name) const { return folder() + "/" + name; }
  static std::string slurp(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static void spill(const std::string& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  }

  static SecretKey key_of(uint8_t byte) {
    SecretKey key = {};
    key.fill(byte);
    return key;
  }
  std::string all_bytes() const {
    std::string bytes;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      bytes += slurp(entry.path().string());
    }
    return bytes;
  }

  std::optional<SecretKey> key_;  // of the store
  std::atomic<int64_t> clock_us_ = int64_t{1'700'000'000} * 1'000'000;
};

}  // namespace fathom
