#include "cache/store/reader.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace fathom {
namespace {

// Enough for a disk to be busy while one buffer is verified and copied.
constexpr size_t kRunsUnderWay = 32;
constexpr int64_t kRunBytes = int64_t{1} << 20;
constexpr size_t kOpenSegments = 64;
constexpr int kTries = 3;

}  // namespace

SegmentReader::SegmentReader(StoreState& state)
    : state_(state),
      queue_(state.disk.queue(static_cast<int>(kRunsUnderWay))),
      buffer_bytes_(std::max(kRunBytes, state.slot_bytes)),
      memory_(static_cast<int64_t>(kRunsUnderWay) * buffer_bytes_),
      runs_(kRunsUnderWay) {
  for (size_t i = 0; i < kRunsUnderWay; ++i) free_.push_back(i);
}

void SegmentReader::run() {
  while (take()) {
    while (!todo_.empty() && !free_.empty()) {
      const size_t buffer = free_.back();
      free_.pop_back();
      runs_[buffer] = next_run();
      start(buffer);
    }
    if (free_.size() < kRunsUnderWay) finish(queue_->wait());
  }
}

bool SegmentReader::take() {
  std::deque<StoreState::Get> gets;
  std::vector<uint32_t> removed;
  {
    std::unique_lock lock(state_.mutex);
    const bool idle = todo_.empty() && free_.size() == kRunsUnderWay;
    if (idle) {
      state_.to_reader.wait(lock, [this] {
        return state_.stopping || !state_.gets.empty() || !state_.removed_segments.empty();
      });
    }
    // Nobody waits any more for what has not begun; what has begun still writes into its buffer.
    if (state_.stopping) todo_.clear();
    if (state_.stopping && free_.size() == kRunsUnderWay) return false;
    if (!state_.stopping) gets.swap(state_.gets);
    removed.swap(state_.removed_segments);
  }
  close_removed(removed);
  if (!gets.empty()) look_up(gets);
  return true;
}

void SegmentReader::look_up(const std::deque<StoreState::Get>& gets) {
  std::vector<Read> found;
  {
    const std::lock_guard lock(state_.mutex);
    const int64_t oldest_us = state_.oldest_us();
    for (const StoreState::Get& get : gets) {
      const CatalogEntry* entry = state_.catalog.find(get.key);
      const bool there = entry != nullptr && entry->created_us >= oldest_us &&
                         entry->payload_bytes == get.into.size();
      if (there) found.push_back({get, entry->place, record_bytes(entry->payload_bytes), false});
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

Result<void> SegmentReader::open(uint32_t segment) {
  auto at = segments_.find(segment);
  if (at == segments_.end()) {
    if (segments_.size() >= kOpenSegments) {
      const auto idle = std::ranges::min_element(segments_, {}, [](const auto& item) {
        return item.second.n_reads > 0 ? UINT64_MAX : item.second.last_use;
      });
      if (idle->second.n_reads == 0) segments_.erase(idle);
    }
    auto file = state_.disk.open(state_.path_of(segment), false);
    if (!file) return file.error();
    at = segments_.emplace(segment, OpenSegment{std::move(*file), 0, 0, false}).first;
  }
  ++at->second.n_reads;
  at->second.last_use = ++n_uses_;
  return {};
}

void SegmentReader::release(uint32_t segment) {
  const auto at = segments_.find(segment);
  FATHOM_CHECK(at != segments_.end());
  if (--at->second.n_reads == 0 && at->second.removed) segments_.erase(at);
}

SegmentReader::Run SegmentReader::next_run() {
  Run run;
  while (!todo_.empty()) {
    const Read& next = todo_.front();
    if (!run.reads.empty()) {
      const Read& last = run.reads.back();
      const RecordPlace behind = {last.place.segment,
                                  static_cast<uint32_t>(last.place.page + last.bytes / kPageBytes)};
      const bool joins = next.place == behind && !last.alone && !next.alone &&
                         run.bytes + next.bytes <= buffer_bytes_;
      if (!joins) break;
    }
    run.bytes += next.bytes;
    run.reads.push_back(next);
    todo_.pop_front();
  }
  return run;
}

void SegmentReader::start(size_t buffer) {
  const Run& run = runs_[buffer];
  const Result<void> opened = open(run.segment());
  if (opened) {
    submit(buffer);
    return;
  }
  free_.push_back(buffer);
  if (opened.error().code == ErrorCode::kNotFound) {
    end(run.reads, std::vector<bool>(run.reads.size(), false));
    return;
  }
  // A process without a descriptor to spare says nothing about the records.
  {
    const std::lock_guard lock(state_.mutex);
    for (const Read& read : run.reads) state_.end_get(read.get.ticket, TierStatus::kMissing);
  }
  state_.to_engine.notify_all();
}

void SegmentReader::submit(size_t buffer) {
  const Run& run = runs_[buffer];
  const int fd = segments_.at(run.segment()).file.get();
  const auto into = memory_.at(static_cast<int64_t>(buffer) * buffer_bytes_, run.bytes);
  queue_->submit({IoKind::kRead, fd, run.reads.front().place.page * kPageBytes, into, buffer});
}

void SegmentReader::finish(const IoCompletion& completion) {
  const auto buffer = static_cast<size_t>(completion.tag);
  Run& run = runs_[buffer];
  const bool whole = completion.result == run.bytes;
  const bool again =
      completion.result >= 0 || completion.result == -EINTR || completion.result == -EAGAIN;
  if (!whole && again && ++run.n_tries < kTries) {
    submit(buffer);
    return;
  }
  release(run.segment());
  free_.push_back(buffer);
  if (!whole && run.reads.size() > 1) {
    for (Read& read : run.reads) {
      read.alone = true;
      todo_.push_back(read);
    }
    return;
  }
  std::vector<bool> delivered;
  int64_t at = static_cast<int64_t>(buffer) * buffer_bytes_;
  for (const Read& read : run.reads) {
    delivered.push_back(whole && deliver(read, memory_.at(at, read.bytes)));
    at += read.bytes;
  }
  end(run.reads, delivered);
}

// Nothing of an unsound record leaves.
bool SegmentReader::deliver(const Read& read, std::span<std::byte> record) const {
  const auto head = open_record(record, state_.options.identity);
  bool sound = head && head->block.key == read.get.key && head->place == read.place &&
               static_cast<size_t>(head->payload_bytes) == read.get.into.size();
  if (sound && state_.sealer) sound = unseal_record(*state_.sealer, record);
  if (sound) std::ranges::copy(payload_of(*head, record), read.get.into.begin());
  return sound;
}

void SegmentReader::end(const std::vector<Read>& reads, const std::vector<bool>& delivered) {
  std::vector<RecordPlace> bad;
  {
    const std::lock_guard lock(state_.mutex);
    for (size_t i = 0; i < reads.size(); ++i) {
      const StoreState::Get& get = reads[i].get;
      const CatalogEntry* entry = state_.catalog.find(get.key);
      if (delivered[i]) {
        state_.catalog.use(get.key);
        state_.end_get(get.ticket, TierStatus::kOk);
      } else if (entry != nullptr && entry->place != reads[i].place) {
        // It was copied meanwhile, and its old place is gone.
        todo_.push_back({get, entry->place, record_bytes(entry->payload_bytes), false});
      } else {
        const TierStatus status = lose(reads[i]);
        if (status == TierStatus::kBad) bad.push_back(reads[i].place);
        state_.end_get(get.ticket, status);
      }
    }
  }
  for (const RecordPlace& place : bad) state_.tell_bad(place);
  state_.to_engine.notify_all();
}

// With the mutex held. A record that was removed meanwhile is nobody's fault; another one is bad,
// and is not to be looked at again.
TierStatus SegmentReader::lose(const Read& read) {
  if (!state_.catalog.remove(read.get.key)) return TierStatus::kMissing;
  state_.dead_rows.push_back(read.place);
  state_.to_writer.notify_one();
  return TierStatus::kBad;
}

}  // namespace fathom
