#include "cache/store/writer.h"

#include <algorithm>
#include <chrono>
#include <unordered_set>
#include <utility>

#include "base/check.h"

namespace fathom {
namespace {

constexpr int kWritesUnderWay = 16;
constexpr size_t kWriteBytes = size_t{1} << 20;    // neighbours in memory go together up to this
constexpr int64_t kGroupBytes = int64_t{8} << 20;  // what one commit publishes at most
constexpr int64_t kCopyShare = 16;                 // copies are at most this part of the puts
constexpr auto kLookAgain = std::chrono::seconds(10);
constexpr int64_t kUsesEveryUs = int64_t{60} * 1'000'000;

}  // namespace

SegmentWriter::SegmentWriter(StoreState& state, Recovered recovered)
    : state_(state),
      index_(std::move(recovered.index)),
      queue_(state.disk.queue(kWritesUnderWay)),
      copies_(kCopiesAtOnce * state.slot_bytes),
      next_segment_(recovered.next_segment),
      active_(recovered.active),
      end_(recovered.active_end),
      opened_us_(state.now_us()),
      uses_us_(opened_us_) {
  state_.index_bytes = index_.file_bytes();
  if (active_ == 0) return;
  auto file = state_.disk.open(state_.path_of(active_), false);
  if (file) {
    file_ = std::move(*file);
  } else {
    close_segment();
  }
}

void SegmentWriter::run() {
  expire();
  keep_bounds(0);
  while (true) {
    const Group group = take();
    expire();
    keep_bounds(0);
    if (!group.slots.empty() || !group.dead_rows.empty()) write(group);
    write_uses(group);
    if (!removed_.empty() && !is_broken()) commit({});
    if (group.at_end) return;
  }
}

SegmentWriter::Group SegmentWriter::take() {
  std::unique_lock lock(state_.mutex);
  state_.to_writer.wait_for(lock, kLookAgain, [this] {
    return state_.stopping || state_.flushing || state_.n_put > state_.n_taken ||
           !state_.dead_rows.empty();
  });
  const int64_t n_most = std::max<int64_t>(1, kGroupBytes / state_.slot_bytes);
  const int64_t n = std::min(n_most, state_.n_put - state_.n_taken);
  Group group;
  group.first = state_.n_taken;
  for (int64_t i = 0; i < n; ++i) {
    group.slots.push_back(state_.slots[static_cast<size_t>((group.first + i) % state_.n_slots)]);
  }
  state_.n_taken += n;
  group.dead_rows.swap(state_.dead_rows);
  group.at_end = state_.stopping && state_.n_taken == state_.n_put;
  group.at_flush = state_.flushing && state_.n_taken == state_.n_put;
  return group;
}

// A row is written again twice at most, together with its neighbours of that minute.
void SegmentWriter::write_uses(const Group& group) {
  const int64_t now_us = state_.now_us();
  const bool is_time = now_us < uses_us_ || now_us - uses_us_ >= kUsesEveryUs;
  if (!is_time && !group.at_flush && !group.at_end) return;
  uses_us_ = now_us;
  StoreIndex::Change change;
  {
    const std::lock_guard lock(state_.mutex);
    for (const BlockKey& key : state_.catalog.take_used()) {
      const CatalogEntry* entry = state_.catalog.find(key);
      if (entry != nullptr) change.n_uses.emplace_back(entry->place, entry->n_uses);
    }
  }
  if (!change.is_empty() && !is_broken()) commit(std::move(change));
  if (!group.at_flush) return;
  const std::lock_guard lock(state_.mutex);
  state_.flushing = false;
  state_.to_engine.notify_all();
}

// Those that are not there yet.
std::vector<SegmentWriter::Item> SegmentWriter::fresh_items(const Group& group) {
  const int64_t now_us = state_.now_us();
  std::vector<Item> items;
  std::unordered_set<BlockKey, BlockKeyHash> keys;
  const std::lock_guard lock(state_.mutex);
  for (size_t i = 0; i < group.slots.size(); ++i) {
    const StoreState::Slot& slot = group.slots[i];
    const CatalogEntry* entry = state_.catalog.find(slot.block.key);
    if (entry != nullptr && entry->created_us < state_.oldest_us()) {
      state_.dead_rows.push_back(entry->place);
      state_.catalog.remove(slot.block.key);
      ++state_.counters.evicted_age;
      entry = nullptr;
    }
    if (entry != nullptr || !keys.insert(slot.block.key).second) {
      state_.catalog.use(slot.block.key);
      ++state_.counters.found_again;
      continue;
    }
    Item item;
    item.head = {slot.block, slot.payload_bytes, now_us, {}};
    item.record = state_.slot(group.first + static_cast<int64_t>(i))
                      .first(static_cast<size_t>(record_bytes(slot.payload_bytes)));
    items.push_back(item);
  }
  return items;
}

void SegmentWriter::write(const Group& group) {
  std::vector<Item> items = fresh_items(group);
  int64_t bytes = 0;
  for (const Item& item : items) bytes += static_cast<int64_t>(item.record.size());
  // First pages of the segments that these may begin.
  if (bytes > 0) bytes += (2 + bytes / state_.options.segment_bytes) * kPageBytes;
  const int64_t pause_us = paused_until_us_ - state_.now_us();
  const bool paused = pause_us > 0 && pause_us <= state_.options.pause_us;
  if (paused || is_broken() || !keep_bounds(bytes)) {
    settle(group, 0, static_cast<int64_t>(items.size()));
    return;
  }
  const Appended appended = append(items);
  const std::span<const Item> durable = std::span(items).first(appended.n);
  StoreIndex::Change change;
  change.remove = group.dead_rows;
  for (const Item& item : durable) change.add.push_back({item.head, item.n_uses});
  const bool committed = change.is_empty() || commit(std::move(change));
  if (committed) publish(durable, group);
  if (!appended.failure) refuse_for_now(appended.failure.error());
  const int64_t n_kept = committed ? static_cast<int64_t>(appended.n) : 0;
  settle(group, n_kept, static_cast<int64_t>(items.size()) - n_kept);
}

void SegmentWriter::publish(std::span<const Item> items, const Group& group) {
  const std::lock_guard lock(state_.mutex);
  std::unordered_set<BlockKey, BlockKeyHash> forgotten;
  for (size_t i = 0; i < group.slots.size(); ++i) {
    const int64_t number = group.first + static_cast<int64_t>(i);
    const auto& slot = state_.slots[static_cast<size_t>(number % state_.n_slots)];
    if (slot.forgotten) forgotten.insert(slot.block.key);
  }
  for (const Item& item : items) {
    const RecordHead& head = item.head;
    CatalogEntry entry;
    entry.place = head.place;
    entry.payload_bytes = static_cast<uint32_t>(head.payload_bytes);
    entry.created_us = head.created_us;
    entry.cost = head.block.cost;
    state_.catalog.add(head.block.key, entry);
    state_.counters.put_payload_bytes += head.payload_bytes;
    copy_budget_ += head.payload_bytes / kCopyShare;
    if (!forgotten.contains(head.block.key)) continue;
    state_.catalog.remove(head.block.key);
    state_.dead_rows.push_back(head.place);
  }
  copy_budget_ = std::min(copy_budget_, state_.options.segment_bytes / 4);
}

void SegmentWriter::settle(const Group& group, int64_t n_kept, int64_t n_failed) {
  {
    const std::lock_guard lock(state_.mutex);
    state_.counters.kept += n_kept;
    state_.counters.dropped_failed += n_failed;
    state_.n_free += static_cast<int64_t>(group.slots.size());
  }
  state_.to_engine.notify_all();
}

SegmentWriter::Appended SegmentWriter::append(std::span<Item> items) {
  size_t done = 0;
  while (done < items.size()) {
    if (active_ == 0) {
      if (auto opened = open_segment(); !opened) return {done, opened};
    }
    int64_t bytes = 0;
    size_t n = 0;
    while (done + n < items.size()) {
      const auto next = static_cast<int64_t>(items[done + n].record.size());
      if (end_ + bytes + next > state_.options.segment_bytes) break;
      bytes += next;
      ++n;
    }
    if (n > 0) {
      if (auto written = append_here(items.subspan(done, n)); !written) return {done, written};
    }
    done += n;
    if (done < items.size()) close_segment();
  }
  return {done, {}};
}

Result<void> SegmentWriter::append_here(std::span<Item> items) {
  std::vector<IoRequest> requests;
  int64_t at = end_;
  for (Item& item : items) {
    item.head.place = {active_, static_cast<uint32_t>(at / kPageBytes)};
    if (item.complete) {
      place_record(item.head.place, item.record);
    } else {
      seal_record(item.head, state_.options.identity, item.record, state_.sealer.get());
    }
    IoRequest* last = requests.empty() ? nullptr : &requests.back();
    const bool together = last != nullptr &&
                          last->bytes.data() + last->bytes.size() == item.record.data() &&
                          last->bytes.size() + item.record.size() <= kWriteBytes;
    if (together) {
      last->bytes = {last->bytes.data(), last->bytes.size() + item.record.size()};
    } else {
      requests.push_back({IoKind::kWrite, file_.get(), at, item.record, 0});
    }
    at += static_cast<int64_t>(item.record.size());
  }
  const std::string path = state_.path_of(active_);
  {
    const std::lock_guard lock(state_.mutex);
    state_.catalog.set_file_bytes(active_, at);
    state_.counters.written_bytes += at - end_;
  }
  Result<void> result = run_all(*queue_, kWritesUnderWay, requests, path);
  IoRequest sync = {IoKind::kSync, file_.get(), 0, {}, 0};
  if (result) result = run_all(*queue_, 1, {&sync, 1}, path);
  if (result) {
    end_ = at;
    return result;
  }
  // After a failed write or sync nobody knows what the disk has of it: what was there before stays,
  // and the segment is not trusted with more.
  if (state_.disk.truncate(path, end_)) {
    const std::lock_guard lock(state_.mutex);
    state_.catalog.set_file_bytes(active_, end_);
  }
  close_segment();
  return result;
}

Result<void> SegmentWriter::open_segment() {
  const uint32_t number = next_segment_++;
  const std::string path = state_.path_of(number);
  FATHOM_ASSIGN_OR_RETURN(file_, state_.disk.open(path, true));
  active_ = number;
  end_ = kPageBytes;
  opened_us_ = state_.now_us();
  {
    const std::lock_guard lock(state_.mutex);
    state_.catalog.add_segment(number, kPageBytes);
    state_.counters.written_bytes += kPageBytes;
  }
  PageMemory page(kPageBytes);
  seal_segment(number, state_.options.identity, page.bytes());
  IoRequest request = {IoKind::kWrite, file_.get(), 0, page.bytes(), 0};
  Result<void> result = run_all(*queue_, 1, {&request, 1}, path);
  if (result) result = state_.disk.sync_folder(state_.options.folder);
  if (!result) close_segment();
  return result;
}

void SegmentWriter::close_segment() {
  {
    const std::lock_guard lock(state_.mutex);
    state_.catalog.seal(active_);
  }
  file_ = FileDescriptor();
  active_ = 0;
  end_ = 0;
}

bool SegmentWriter::commit(StoreIndex::Change change) {
  change.remove_segments = std::exchange(removed_, {});
  auto result = index_.commit(change);
  if (!result) break_down(result.error());
  const std::lock_guard lock(state_.mutex);
  state_.index_bytes = index_.file_bytes();
  return result.has_value();
}

bool SegmentWriter::is_broken() {
  const std::lock_guard lock(state_.mutex);
  return !state_.broken.empty();
}

void SegmentWriter::break_down(const Error& error) {
  const std::lock_guard lock(state_.mutex);
  if (state_.broken.empty()) state_.broken = error.message;
}

void SegmentWriter::refuse_for_now(const Error& error) {
  paused_until_us_ = state_.now_us() + state_.options.pause_us;
  if (error.code != ErrorCode::kExhausted) return;
  const std::lock_guard lock(state_.mutex);
  const int64_t segment_bytes = state_.options.segment_bytes;
  const int64_t fits = std::max(2 * segment_bytes, state_.held_bytes() - segment_bytes);
  state_.max_bytes = std::min(state_.max_bytes, fits);
}

}  // namespace fathom
