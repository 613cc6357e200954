#include "cache/store/catalog.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace fathom {
namespace {

// What a record that nobody asked for counts, in uses.
constexpr double kUnused = 1.0 / 8;

}  // namespace

const CatalogEntry* Catalog::find(const BlockKey& key) const {
  const auto at = by_key_.find(key);
  return at == by_key_.end() ? nullptr : &at->second;
}

double Catalog::priority(const CatalogEntry& entry) const {
  return entry.base +
         rule_.gain(entry.n_uses + kUnused, entry.cost / std::max(1U, entry.payload_bytes));
}

double Catalog::mean_priority() const {
  return live_bytes_ == 0 ? 0 : worth_ / static_cast<double>(live_bytes_);
}

void Catalog::count_in(const CatalogEntry& entry, int sign) {
  Segment& segment = segments_.at(entry.place.segment);
  const int64_t bytes = record_bytes(entry.payload_bytes);
  const double worth = priority(entry) * static_cast<double>(bytes);
  segment.n_live += sign;
  segment.live_bytes += sign * bytes;
  segment.payload_bytes += sign * int64_t{entry.payload_bytes};
  // Sums of many roundings end where they began.
  segment.worth = segment.n_live == 0 ? 0 : segment.worth + sign * worth;
  live_bytes_ += sign * bytes;
  payload_bytes_ += sign * int64_t{entry.payload_bytes};
  worth_ = live_bytes_ == 0 ? 0 : worth_ + sign * worth;
}

void Catalog::add(const BlockKey& key, CatalogEntry entry) {
  entry.base = rule_.base(floor_);
  const bool is_new = by_key_.emplace(key, entry).second;
  FATHOM_CHECK(is_new);
  count_in(entry, 1);
  Segment& segment = segments_.at(entry.place.segment);
  segment.oldest_us = std::min(segment.oldest_us, entry.created_us);
  segment.newest_us = std::max(segment.newest_us, entry.created_us);
}

void Catalog::move(const BlockKey& key, const RecordPlace& place) {
  CatalogEntry& entry = by_key_.at(key);
  count_in(entry, -1);
  entry.place = place;
  count_in(entry, 1);
  Segment& segment = segments_.at(place.segment);
  segment.oldest_us = std::min(segment.oldest_us, entry.created_us);
  segment.newest_us = std::max(segment.newest_us, entry.created_us);
}

void Catalog::use(const BlockKey& key) {
  const auto at = by_key_.find(key);
  if (at == by_key_.end()) return;
  count_in(at->second, -1);
  if (++at->second.n_uses <= RecomputeWorth::kUsesMax) used_.push_back(key);
  at->second.base = rule_.base(floor_);
  count_in(at->second, 1);
}

bool Catalog::remove(const BlockKey& key) {
  const auto at = by_key_.find(key);
  if (at == by_key_.end()) return false;
  count_in(at->second, -1);
  by_key_.erase(at);
  return true;
}

void Catalog::add_segment(uint32_t number, int64_t file_bytes) {
  Segment segment;
  segment.file_bytes = file_bytes;
  const bool is_new = segments_.emplace(number, segment).second;
  FATHOM_CHECK(is_new);
  file_bytes_ += file_bytes;
}

void Catalog::set_file_bytes(uint32_t number, int64_t file_bytes) {
  Segment& segment = segments_.at(number);
  file_bytes_ += file_bytes - segment.file_bytes;
  segment.file_bytes = file_bytes;
}

void Catalog::seal(uint32_t number) { segments_.at(number).sealed = true; }

void Catalog::remove_segment(uint32_t number) {
  const auto at = segments_.find(number);
  FATHOM_CHECK(at != segments_.end());
  FATHOM_CHECK(at->second.n_live == 0);
  file_bytes_ -= at->second.file_bytes;
  segments_.erase(at);
}

std::optional<uint32_t> Catalog::least() const {
  std::optional<uint32_t> found;
  double least = 0;
  for (const auto& [number, segment] : segments_) {
    if (!segment.sealed) continue;
    const double worth =
        segment.worth / static_cast<double>(std::max<int64_t>(1, segment.file_bytes));
    if (found.has_value() && worth >= least) continue;
    found = number;
    least = worth;
  }
  return found;
}

std::optional<uint32_t> Catalog::older_than(int64_t us) const {
  for (const auto& [number, segment] : segments_) {
    if (segment.sealed && (segment.n_live == 0 || segment.newest_us < us)) return number;
  }
  return std::nullopt;
}

void Catalog::check() const {
  std::map<uint32_t, Segment> counted;
  int64_t live = 0;
  for (const auto& [key, entry] : by_key_) {
    FATHOM_CHECK(segments_.count(entry.place.segment) == 1);
    Segment& segment = counted[entry.place.segment];
    ++segment.n_live;
    segment.live_bytes += record_bytes(entry.payload_bytes);
    segment.worth += priority(entry) * static_cast<double>(record_bytes(entry.payload_bytes));
    live += record_bytes(entry.payload_bytes);
    FATHOM_CHECK(entry.created_us <= segments_.at(entry.place.segment).newest_us);
  }
  FATHOM_CHECK(live == live_bytes_);
  int64_t bytes = 0;
  for (const auto& [number, segment] : segments_) {
    FATHOM_CHECK(counted[number].n_live == segment.n_live);
    FATHOM_CHECK(counted[number].live_bytes == segment.live_bytes);
    FATHOM_CHECK(std::abs(counted[number].worth - segment.worth) <= 1e-6 * (1 + segment.worth));
    bytes += segment.file_bytes;
  }
  FATHOM_CHECK(bytes == file_bytes_);
}

}  // namespace fathom
