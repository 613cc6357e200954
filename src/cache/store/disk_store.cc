#include "cache/store/disk_store.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/temporary.h"
#include "cache/store/reader.h"
#include "cache/store/recover.h"
#include "cache/store/state.h"
#include "cache/store/writer.h"

namespace fathom {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kSegmentsMin = 4;
constexpr int64_t kHourUs = int64_t{3600} * 1'000'000;

Result<void> expect(bool holds, const std::string& what, int64_t found) {
  if (holds) return {};
  return invalid("store: wanted " + what + ", found " + std::to_string(found));
}

Result<void> check_options(const StoreOptions& options) {
  const int64_t block = options.identity.block_bytes;
  FATHOM_RETURN_IF_ERROR(
      expect(1 <= block && block <= kBlockBytesMax, "block bytes from 1 to 2^28", block));
  const int64_t segment = options.segment_bytes;
  const int64_t least = kPageBytes + record_bytes(block);
  FATHOM_RETURN_IF_ERROR(expect(least <= segment && segment <= int64_t{1} << 40,
                                "segment bytes from " + std::to_string(least) + " to 2^40",
                                segment));
  FATHOM_RETURN_IF_ERROR(expect(options.max_bytes / kSegmentsMin >= segment,
                                "a bound of at least 4 segments", options.max_bytes));
  FATHOM_RETURN_IF_ERROR(expect(options.max_age_us > 0, "an age above 0", options.max_age_us));
  FATHOM_RETURN_IF_ERROR(expect(options.queue_bytes > 0, "a queue above 0", options.queue_bytes));
  return expect(options.max_reads > 0, "reads above 0", options.max_reads);
}

Result<void> check_folder(const StoreOptions& options) {
  std::error_code failure;
  if (options.create && !fs::exists(options.folder, failure)) {
    fs::create_directory(options.folder, failure);
    if (failure) return io_error(options.folder + ": cannot create: " + failure.message());
  }
  if (!fs::exists(options.folder, failure)) return not_found(options.folder + ": no such folder");
  if (!fs::is_directory(options.folder, failure)) {
    return invalid(options.folder + ": expected a folder");
  }
  return {};
}

}  // namespace

struct DiskStore::Parts {
  Parts(FolderLock lock, std::unique_ptr<Disk> own_disk, const StoreOptions& options,
        std::unique_ptr<const Sealer> sealer)
      : lock(std::move(lock)),
        own_disk(std::move(own_disk)),
        state(options, options.disk != nullptr ? *options.disk : *this->own_disk,
              std::move(sealer)) {}

  FolderLock lock;
  std::unique_ptr<Disk> own_disk;
  StoreState state;
  StoreReport report;
  std::unique_ptr<SegmentWriter> writer;
  std::unique_ptr<SegmentReader> reader;
  std::jthread writing;
  std::jthread reading;
};

Result<std::unique_ptr<DiskStore>> DiskStore::open(const StoreOptions& given) {
  StoreOptions options = given;
  options.key.reset();
  FATHOM_RETURN_IF_ERROR(check_options(options));
  FATHOM_RETURN_IF_ERROR(check_folder(options));
  FATHOM_ASSIGN_OR_RETURN(FolderLock lock, FolderLock::take(options.folder));
  FATHOM_ASSIGN_OR_RETURN(Claim claim, claim_folder(given));
  options.identity = claim.identity;
  std::unique_ptr<Disk> disk;
  if (options.disk == nullptr) disk = system_disk(options.folder, options.road);
  auto parts =
      std::make_unique<Parts>(std::move(lock), std::move(disk), options, std::move(claim.sealer));
  FATHOM_ASSIGN_OR_RETURN(Recovered recovered, recover(parts->state));
  parts->report = recovered.report;
  parts->report.road = parts->state.disk.road();
  parts->writer = std::make_unique<SegmentWriter>(parts->state, std::move(recovered));
  parts->reader = std::make_unique<SegmentReader>(parts->state);
  return std::unique_ptr<DiskStore>(new DiskStore(std::move(parts)));
}

DiskStore::DiskStore(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {
  parts_->writing = std::jthread([writer = parts_->writer.get()] { writer->run(); });
  parts_->reading = std::jthread([reader = parts_->reader.get()] { reader->run(); });
}

DiskStore::~DiskStore() {
  StoreState& state = parts_->state;
  {
    const std::lock_guard lock(state.mutex);
    state.stopping = true;
  }
  state.to_writer.notify_all();
  state.to_reader.notify_all();
  parts_->writing.join();
  parts_->reading.join();
}

bool DiskStore::put(const TierBlock& block, std::span<const std::byte> payload) {
  StoreState& state = parts_->state;
  const auto payload_bytes = static_cast<int64_t>(payload.size());
  FATHOM_CHECK(0 < payload_bytes && payload_bytes <= state.options.identity.block_bytes);
  std::unique_lock lock(state.mutex);
  ++state.counters.puts;
  const CatalogEntry* entry = state.catalog.find(block.key);
  if (entry != nullptr && entry->created_us >= state.oldest_us()) {
    state.catalog.use(block.key);
    ++state.counters.found_again;
    return true;
  }
  const bool full = state.n_put - state.n_free >= state.n_slots;
  if (full || !state.broken.empty()) {
    ++(full ? state.counters.dropped_full : state.counters.dropped_failed);
    return false;
  }
  const int64_t number = state.n_put;
  state.slots[static_cast<size_t>(number % state.n_slots)] = {block, payload_bytes, false};
  // The slot is nobody else's until it is counted.
  lock.unlock();
  std::ranges::copy(payload, state.slot(number).begin() + kRecordHeadBytes);
  lock.lock();
  ++state.n_put;
  lock.unlock();
  state.to_writer.notify_one();
  return true;
}

int64_t DiskStore::count(std::span<const BlockKey> keys) const {
  StoreState& state = parts_->state;
  const int64_t oldest_us = state.oldest_us();
  const std::lock_guard lock(state.mutex);
  const auto is_absent = [&](const BlockKey& key) {
    const CatalogEntry* entry = state.catalog.find(key);
    return entry == nullptr || entry->created_us < oldest_us;
  };
  return std::ranges::find_if(keys, is_absent) - keys.begin();
}

std::optional<TierTicket> DiskStore::get(const BlockKey& key, std::span<std::byte> payload) {
  StoreState& state = parts_->state;
  TierTicket ticket = {};
  {
    const std::lock_guard lock(state.mutex);
    if (state.n_gets >= state.options.max_reads) return std::nullopt;
    ticket = TierTicket{++state.last_ticket};
    ++state.n_gets;
    ++state.counters.gets;
    state.gets.push_back({ticket, key, payload});
  }
  state.to_reader.notify_one();
  return ticket;
}

std::vector<TierCompletion> DiskStore::poll(int64_t timeout_us) {
  StoreState& state = parts_->state;
  std::unique_lock lock(state.mutex);
  state.to_engine.wait_for(lock, std::chrono::microseconds(timeout_us),
                           [&] { return !state.ended.empty(); });
  return std::exchange(state.ended, {});
}

void DiskStore::forget(const BlockKey& key) {
  StoreState& state = parts_->state;
  const std::lock_guard lock(state.mutex);
  const CatalogEntry* entry = state.catalog.find(key);
  if (entry != nullptr) {
    state.dead_rows.push_back(entry->place);
    state.catalog.remove(key);
    ++state.counters.forgotten;
    state.to_writer.notify_one();
  }
  for (int64_t number = state.n_free; number < state.n_put; ++number) {
    StoreState::Slot& slot = state.slots[static_cast<size_t>(number % state.n_slots)];
    slot.forgotten = slot.forgotten || slot.block.key == key;
  }
}

void DiskStore::flush() {
  StoreState& state = parts_->state;
  std::unique_lock lock(state.mutex);
  state.flushing = true;
  state.to_writer.notify_one();
  state.to_engine.wait(lock, [&] { return state.n_free == state.n_put && !state.flushing; });
}

TierCounters DiskStore::counters() const {
  constexpr std::array<int64_t, 4> kAges = {kHourUs, 6 * kHourUs, 24 * kHourUs, 72 * kHourUs};
  StoreState& state = parts_->state;
  const int64_t now_us = state.now_us();
  const std::lock_guard lock(state.mutex);
  TierCounters counters = state.counters;
  counters.n_blocks = state.catalog.n_records();
  counters.payload_bytes = state.catalog.payload_bytes();
  counters.held_bytes = state.held_bytes();
  counters.max_bytes = state.max_bytes;
  for (const auto& [number, segment] : state.catalog.segments()) {
    if (segment.n_live == 0) continue;
    const auto age = std::ranges::upper_bound(kAges, now_us - segment.newest_us) - kAges.begin();
    counters.bytes_by_age.at(static_cast<size_t>(age)) += segment.payload_bytes;
  }
  return counters;
}

const StoreReport& DiskStore::report() const { return parts_->report; }

std::string DiskStore::broken() const {
  const std::lock_guard lock(parts_->state.mutex);
  return parts_->state.broken;
}

}  // namespace fathom
