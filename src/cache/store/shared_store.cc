#include "cache/store/shared_store.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "base/check.h"
#include "cache/store/shared_work.h"

namespace fathom {
namespace {

constexpr int64_t kBlocksMin = 64;  // that the bound has room for

Result<void> check_options(const SharedOptions& options) {
  const int64_t block = options.identity.block_bytes;
  if (block < 1 || block > kBlockBytesMax) {
    return invalid("shared store: wanted block bytes from 1 to 2^28, found " +
                   std::to_string(block));
  }
  const int64_t least = kBlocksMin * record_bytes(block);
  if (options.max_bytes < least) {
    return invalid("shared store: wanted a bound of at least " + std::to_string(least) +
                   " bytes, found " + std::to_string(options.max_bytes));
  }
  FATHOM_CHECK(options.max_age_us > 0 && options.look_us > 0 && options.n_workers > 0);
  FATHOM_CHECK(options.queue_bytes > 0 && options.max_reads > 0);
  return {};
}

}  // namespace

struct SharedStore::Parts {
  Parts(const SharedOptions& options, SharedFolder folder) : work(options, std::move(folder)) {}

  SharedWork work;
  std::vector<std::jthread> workers;
  std::jthread keeper;
};

Result<std::unique_ptr<SharedStore>> SharedStore::open(const SharedOptions& options) {
  FATHOM_RETURN_IF_ERROR(check_options(options));
  FATHOM_ASSIGN_OR_RETURN(SharedFolder folder,
                          SharedFolder::open(options.folder, options.identity));
  auto parts = std::make_unique<Parts>(options, std::move(folder));
  parts->work.look();
  parts->work.n_looked = parts->work.n_looks;
  return std::unique_ptr<SharedStore>(new SharedStore(std::move(parts)));
}

SharedStore::SharedStore(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {
  SharedWork& work = parts_->work;
  for (int64_t i = 0; i < work.options.n_workers; ++i) {
    parts_->workers.emplace_back([&work] { work.work(); });
  }
  parts_->keeper = std::jthread([&work] { work.keep(); });
}

SharedStore::~SharedStore() {
  {
    const std::lock_guard lock(parts_->work.mutex);
    parts_->work.stopping = true;
  }
  parts_->work.to_workers.notify_all();
  parts_->work.to_keeper.notify_all();
  for (std::jthread& worker : parts_->workers) worker.join();
  parts_->work.to_keeper.notify_all();
  parts_->keeper.join();
}

bool SharedStore::put(const TierBlock& block, std::span<const std::byte> payload) {
  SharedWork& work = parts_->work;
  const auto payload_bytes = static_cast<int64_t>(payload.size());
  FATHOM_CHECK(0 < payload_bytes && payload_bytes <= work.options.identity.block_bytes);
  const int64_t bytes = record_bytes(payload_bytes);
  const int64_t now_us = work.now_us();
  {
    const std::lock_guard lock(work.mutex);
    ++work.counters.puts;
    const SharedCatalog::Entry* entry = work.catalog.find(block.key);
    const bool is_known = entry != nullptr && entry->created_us >= now_us - work.options.max_age_us;
    if (is_known || work.putting.count(block.key) != 0) {
      ++work.counters.found_again;
      work.note_use(block.key);
      return true;
    }
    const bool is_full = work.put_bytes + bytes > work.options.queue_bytes;
    if (is_full || now_us < work.paused_until_us) {
      ++(is_full ? work.counters.dropped_full : work.counters.dropped_failed);
      return false;
    }
    work.put_bytes += bytes;
    work.putting.insert(block.key);
  }
  SharedWork::Put put = {.block = block, .payload_bytes = payload_bytes};
  put.record.resize(static_cast<size_t>(bytes));
  std::ranges::copy(payload, put.record.begin() + kRecordHeadBytes);
  {
    const std::lock_guard lock(work.mutex);
    work.puts.push_back(std::move(put));
  }
  work.to_workers.notify_one();
  return true;
}

int64_t SharedStore::count(std::span<const BlockKey> keys) const {
  const SharedWork& work = parts_->work;
  const int64_t oldest_us = work.oldest_us();
  const std::lock_guard lock(work.mutex);
  const auto is_absent = [&](const BlockKey& key) {
    const SharedCatalog::Entry* entry = work.catalog.find(key);
    return entry == nullptr || entry->created_us < oldest_us;
  };
  return std::ranges::find_if(keys, is_absent) - keys.begin();
}

std::optional<TierTicket> SharedStore::get(const BlockKey& key, std::span<std::byte> payload) {
  SharedWork& work = parts_->work;
  TierTicket ticket = {};
  {
    const std::lock_guard lock(work.mutex);
    if (work.n_gets >= work.options.max_reads) return std::nullopt;
    ticket = TierTicket{++work.last_ticket};
    ++work.n_gets;
    ++work.counters.gets;
    work.gets.push_back({ticket, key, payload});
  }
  work.to_workers.notify_one();
  return ticket;
}

std::vector<TierCompletion> SharedStore::poll(int64_t timeout_us) {
  SharedWork& work = parts_->work;
  std::unique_lock lock(work.mutex);
  work.to_engine.wait_for(lock, std::chrono::microseconds(timeout_us),
                          [&] { return !work.ended.empty(); });
  return std::exchange(work.ended, {});
}

void SharedStore::forget(const BlockKey& key) {
  SharedWork& work = parts_->work;
  const std::lock_guard lock(work.mutex);
  if (!work.catalog.remove(key) && work.putting.count(key) == 0) return;
  ++work.counters.forgotten;
  work.forgotten.insert(key);
  work.dead.push_back(key);
}

void SharedStore::flush() {
  SharedWork& work = parts_->work;
  std::unique_lock lock(work.mutex);
  work.to_engine.wait(lock, [&] { return work.putting.empty(); });
}

void SharedStore::look() {
  SharedWork& work = parts_->work;
  std::unique_lock lock(work.mutex);
  // One that begins from now on: what is under way may have passed a folder already.
  const int64_t number = work.n_looks + 1;
  while (work.n_looked < number) {
    work.asks_look = true;
    work.to_keeper.notify_one();
    work.to_engine.wait_for(lock, std::chrono::milliseconds(10));
  }
}

TierCounters SharedStore::counters() const {
  const SharedWork& work = parts_->work;
  const std::lock_guard lock(work.mutex);
  TierCounters counters = work.counters;
  counters.n_blocks = work.catalog.n_blocks();
  counters.held_bytes = work.catalog.bytes();
  counters.max_bytes = work.options.max_bytes;
  for (const int64_t bytes : counters.bytes_by_age) counters.payload_bytes += bytes;
  return counters;
}

std::string SharedStore::failure() const {
  const std::lock_guard lock(parts_->work.mutex);
  return parts_->work.failure;
}

}  // namespace fathom
