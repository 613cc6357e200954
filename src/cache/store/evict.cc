// What of SegmentWriter keeps the bounds of bytes and age.
#include <algorithm>
#include <unordered_set>
#include <utility>

#include "cache/store/writer.h"

namespace fathom {
namespace {

constexpr int64_t kCloseShare = 8;  // of the age bound: the time that a segment has to fill
// Sums of the catalog are rounded: blocks that are all worth the same are not worth copying.
constexpr double kAboveMean = 1 + 1e-6;

}  // namespace

bool SegmentWriter::keep_bounds(int64_t bytes) {
  while (true) {
    {
      const std::lock_guard lock(state_.mutex);
      if (state_.held_bytes() + bytes <= state_.max_bytes) return true;
    }
    if (is_broken() || !shrink()) return false;
  }
}

// Whether a segment went.
bool SegmentWriter::shrink() {
  const auto least = [this] {
    const std::lock_guard lock(state_.mutex);
    return state_.catalog.least();
  };
  std::optional<uint32_t> segment = least();
  if (!segment && active_ != 0 && end_ > kPageBytes) {
    close_segment();
    segment = least();
  }
  if (!segment) return false;
  evict(*segment);
  return !is_broken();
}

void SegmentWriter::expire() {
  const int64_t now_us = state_.now_us();
  const int64_t oldest_us = now_us - state_.options.max_age_us;
  // Copies are older than their segment, so it is not its records' age that counts here.
  const bool fills_slowly = opened_us_ < now_us - state_.options.max_age_us / kCloseShare;
  if (active_ != 0 && end_ > kPageBytes && fills_slowly) close_segment();
  while (!is_broken()) {
    std::unique_lock lock(state_.mutex);
    const std::optional<uint32_t> segment = state_.catalog.older_than(oldest_us);
    lock.unlock();
    if (!segment) return;
    const auto rows = index_.rows_of(*segment);
    if (!rows) return break_down(rows.error());
    remove(*segment, *rows, true);
  }
}

void SegmentWriter::evict(uint32_t segment) {
  const auto rows = index_.rows_of(segment);
  if (!rows) return break_down(rows.error());
  const std::vector<IndexRow> best = worth_copying(*rows);
  if (!best.empty()) copy(best);
  if (!is_broken()) remove(segment, *rows, false);
}

// Blocks that are worth more than the mean of all, the best first as far as the budget lasts, and
// of those the ones that a lookup reaches: whose parent stays.
std::vector<IndexRow> SegmentWriter::worth_copying(const std::vector<IndexRow>& rows) {
  std::vector<std::pair<double, IndexRow>> candidates;
  const std::lock_guard lock(state_.mutex);
  const double mean = state_.catalog.mean_priority() * kAboveMean;
  const int64_t oldest_us = state_.oldest_us();
  for (const IndexRow& row : rows) {
    const CatalogEntry* entry = state_.catalog.find(row.head.block.key);
    const bool lives =
        entry != nullptr && entry->place == row.head.place && entry->created_us >= oldest_us;
    if (!lives || state_.catalog.priority(*entry) <= mean) continue;
    candidates.push_back({state_.catalog.priority(*entry), {row.head, entry->n_uses}});
  }
  std::ranges::stable_sort(candidates, std::greater(), [](const auto& item) { return item.first; });
  std::vector<IndexRow> best;
  int64_t budget = copy_budget_;
  for (const auto& [priority, row] : candidates) {
    budget -= record_bytes(row.head.payload_bytes);
    if (budget < 0) break;
    best.push_back(row);
  }
  std::ranges::sort(best, {}, [](const IndexRow& row) { return row.head.block.first_position; });
  std::unordered_set<BlockKey, BlockKeyHash> staying;
  std::vector<IndexRow> reached;
  for (const IndexRow& row : best) {
    const TierBlock& block = row.head.block;
    const CatalogEntry* parent = state_.catalog.find(block.parent);
    const bool elsewhere = parent != nullptr && parent->place.segment != row.head.place.segment;
    if (block.first_position != 0 && !elsewhere && !staying.contains(block.parent)) continue;
    staying.insert(block.key);
    reached.push_back(row);
    copy_budget_ -= record_bytes(row.head.payload_bytes);
  }
  return reached;
}

// Where a copy fails, its block goes with the segment.
void SegmentWriter::copy(std::span<const IndexRow> rows) {
  const std::string path = state_.path_of(rows.front().head.place.segment);
  const auto file = state_.disk.open(path, false);
  if (!file) return;
  while (!rows.empty()) {
    const auto chunk = rows.first(std::min<size_t>(rows.size(), kCopiesAtOnce));
    rows = rows.subspan(chunk.size());
    std::vector<Item> items;
    std::vector<RecordPlace> places;
    for (const IndexRow& row : chunk) {
      const auto at = static_cast<int64_t>(items.size()) * state_.slot_bytes;
      const auto record = copies_.at(at, record_bytes(row.head.payload_bytes));
      IoRequest request = {IoKind::kRead, file->get(), row.head.place.page * kPageBytes, record, 0};
      if (!run_all(*queue_, 1, {&request, 1}, path)) continue;
      auto head = open_record(record, state_.options.identity);
      if (!head || head->place != row.head.place || head->block.key != row.head.block.key) {
        {
          const std::lock_guard lock(state_.mutex);
          ++state_.counters.bad;
        }
        state_.tell_bad(row.head.place);
        continue;
      }
      places.push_back(head->place);
      items.push_back({*head, row.n_uses, record, true});
    }
    if (!move(items, places)) return;
  }
}

bool SegmentWriter::move(std::span<Item> items, std::span<const RecordPlace> from) {
  const Appended appended = append(items);
  StoreIndex::Change change;
  for (size_t i = 0; i < appended.n; ++i) {
    change.add.push_back({items[i].head, items[i].n_uses});
    change.remove.push_back(from[i]);
  }
  if (!change.is_empty() && !commit(std::move(change))) return false;
  {
    const std::lock_guard lock(state_.mutex);
    for (size_t i = 0; i < appended.n; ++i) {
      const RecordHead& head = items[i].head;
      const CatalogEntry* entry = state_.catalog.find(head.block.key);
      if (entry != nullptr && entry->place == from[i]) {
        state_.catalog.move(head.block.key, head.place);
      } else {
        state_.dead_rows.push_back(head.place);
      }
    }
  }
  if (!appended.failure) refuse_for_now(appended.failure.error());
  return appended.failure.has_value();
}

// Not found first, then the file, then its rows: what stands without the other is known at a start.
void SegmentWriter::remove(uint32_t segment, const std::vector<IndexRow>& rows, bool for_age) {
  double worth = 0;
  double bytes = 0;
  {
    const std::lock_guard lock(state_.mutex);
    for (const IndexRow& row : rows) {
      const CatalogEntry* entry = state_.catalog.find(row.head.block.key);
      if (entry == nullptr || entry->place != row.head.place) continue;
      worth += state_.catalog.priority(*entry) * entry->payload_bytes;
      bytes += entry->payload_bytes;
      state_.catalog.remove(row.head.block.key);
      ++(for_age ? state_.counters.evicted_age : state_.counters.evicted_size);
    }
    if (bytes > 0 && !for_age) state_.catalog.raise_floor(worth / bytes);
    state_.catalog.remove_segment(segment);
    state_.removed_segments.push_back(segment);
    state_.to_reader.notify_one();
  }
  const auto removed = state_.disk.remove(state_.path_of(segment));
  if (!removed && removed.error().code != ErrorCode::kNotFound) return break_down(removed.error());
  // With the next commit: a start drops rows whose file is gone.
  removed_.push_back(segment);
}

}  // namespace fathom
