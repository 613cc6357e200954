#include "cache/store/reader.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace fathom {
namespace {

// Enough for a disk to be busy while one buffer is verified and copied.
constexpr size_t kReadsUnderWay = 32;
constexpr size_t kOpenSegments = 64;
constexpr int kTries = 3;

}  // namespace

SegmentReader::SegmentReader(StoreState& state)
    : state_(state),
      queue_(state.disk.queue(static_cast<int>(kReadsUnderWay))),
      memory_(static_cast<int64_t>(kReadsUnderWay) * state.slot_bytes),
      reads_(kReadsUnderWay) {
  for (size_t i = 0; i < kReadsUnderWay; ++i) free_.push_back(i);
}

std::span<std::byte> SegmentReader::buffer_of(size_t buffer) {
  return memory_.at(static_cast<int64_t>(buffer) * state_.slot_bytes, reads_[buffer].bytes);
}

void SegmentReader::run() {
  while (take()) {
    while (!todo_.empty() && !free_.empty()) {
      const Read read = todo_.front();
      todo_.pop_front();
      const size_t buffer = free_.back();
      free_.pop_back();
      start(buffer, read);
    }
    if (free_.size() < kReadsUnderWay) finish(queue_->wait());
  }
}

bool SegmentReader::take() {
  std::deque<StoreState::Get> gets;
  std::vector<uint32_t> removed;
  {
    std::unique_lock lock(state_.mutex);
    const bool idle = todo_.empty() && free_.size() == kReadsUnderWay;
    if (idle) {
      state_.to_reader.wait(lock, [this] {
        return state_.stopping || !state_.gets.empty() || !state_.removed_segments.empty();
      });
    }
    // Nobody waits any more for what has not begun; what has begun still writes into its buffer.
    if (state_.stopping) todo_.clear();
    if (state_.stopping && free_.size() == kReadsUnderWay) return false;
    if (!state_.stopping) gets.swap(state_.gets);
    removed.swap(state_.removed_segments);
  }
  close_removed(removed);
  if (!gets.empty()) look_up(std::move(gets));
  return true;
}

void SegmentReader::look_up(std::deque<StoreState::Get> gets) {
  std::vector<Read> found;
  {
    const std::lock_guard lock(state_.mutex);
    const int64_t oldest_us = state_.oldest_us();
    for (const StoreState::Get& get : gets) {
      const CatalogEntry* entry = state_.catalog.find(get.key);
      const bool there = entry != nullptr && entry->created_us >= oldest_us &&
                         entry->payload_bytes == get.into.size();
      if (there) found.push_back({get, entry->place, record_bytes(entry->payload_bytes), 0});
      if (!there) state_.end_get(get.ticket, TierStatus::kMissing);
    }
  }
  state_.to_engine.notify_all();
  std::ranges::sort(found, {}, &Read::place);
  todo_.insert(todo_.end(), found.begin(), found.end());
}

void SegmentReader::close_removed(const std::vector<uint32_t>& segments) {
  for (const uint32_t segment : segments) {
    const auto at = segments_.find(segment);
    if (at == segments_.end()) continue;
    at->second.removed = true;
    if (at->second.n_reads == 0) segments_.erase(at);
  }
}

SegmentReader::OpenSegment* SegmentReader::open(uint32_t segment) {
  auto at = segments_.find(segment);
  if (at == segments_.end()) {
    if (segments_.size() >= kOpenSegments) {
      const auto idle = std::ranges::min_element(segments_, {}, [](const auto& item) {
        return item.second.n_reads > 0 ? UINT64_MAX : item.second.last_use;
      });
      if (idle->second.n_reads == 0) segments_.erase(idle);
    }
    auto file = state_.disk.open(state_.path_of(segment), false);
    if (!file) return nullptr;
    at = segments_.emplace(segment, OpenSegment{std::move(*file), 0, 0, false}).first;
  }
  ++at->second.n_reads;
  at->second.last_use = ++n_uses_;
  return &at->second;
}

void SegmentReader::release(uint32_t segment) {
  const auto at = segments_.find(segment);
  FATHOM_CHECK(at != segments_.end());
  if (--at->second.n_reads == 0 && at->second.removed) segments_.erase(at);
}

void SegmentReader::start(size_t buffer, const Read& read) {
  reads_[buffer] = read;
  if (open(read.place.segment) == nullptr) {
    free_.push_back(buffer);
    lose(read);
    return;
  }
  submit(buffer);
}

void SegmentReader::submit(size_t buffer) {
  const Read& read = reads_[buffer];
  const int fd = segments_.at(read.place.segment).file.get();
  queue_->submit({IoKind::kRead, fd, read.place.page * kPageBytes, buffer_of(buffer), buffer});
}

void SegmentReader::finish(const IoCompletion& completion) {
  const auto buffer = static_cast<size_t>(completion.tag);
  Read& read = reads_[buffer];
  const bool whole = completion.result == read.bytes;
  const bool again =
      completion.result >= 0 || completion.result == -EINTR || completion.result == -EAGAIN;
  if (!whole && again && ++read.n_tries < kTries) {
    submit(buffer);
    return;
  }
  release(read.place.segment);
  const std::span<const std::byte> record = buffer_of(buffer);
  const auto head = whole ? open_record(record, state_.options.identity)
                          : Result<RecordHead>(io_error("record: cannot be read"));
  const bool sound = head && head->block.key == read.get.key && head->place == read.place &&
                     static_cast<size_t>(head->payload_bytes) == read.get.into.size();
  if (sound) std::ranges::copy(payload_of(*head, record), read.get.into.begin());
  free_.push_back(buffer);
  if (sound) {
    end(read, TierStatus::kOk);
  } else {
    lose(read);
  }
}

// The record cannot be had where it was: it was copied or removed meanwhile, which is nobody's
// fault, or it is bad and is not to be looked at again.
void SegmentReader::lose(const Read& read) {
  TierStatus status = TierStatus::kMissing;
  {
    const std::lock_guard lock(state_.mutex);
    const CatalogEntry* entry = state_.catalog.find(read.get.key);
    if (entry != nullptr && entry->place == read.place) {
      status = TierStatus::kBad;
      state_.catalog.remove(read.get.key);
      state_.dead_rows.push_back(read.place);
      state_.to_writer.notify_one();
    } else if (entry != nullptr) {
      todo_.push_back({read.get, entry->place, record_bytes(entry->payload_bytes), 0});
      return;
    }
  }
  end(read, status);
}

void SegmentReader::end(const Read& read, TierStatus status) {
  {
    const std::lock_guard lock(state_.mutex);
    state_.end_get(read.get.ticket, status);
    if (status == TierStatus::kOk) state_.catalog.use(read.get.key);
  }
  state_.to_engine.notify_all();
}

}  // namespace fathom
