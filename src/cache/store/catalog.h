#pragma once

// Catalog: what the store's records are, in memory, by key: where they lie, what they are worth,
// and which segment goes next.
//
// A record's priority is its worth (cache/worth.h), one that nobody asked for counting an eighth of
// a use. A segment's worth is the priorities of its records, weighted by their bytes, over the
// bytes of its file: dead bytes count nothing. Thread rule: the owner's; it has no lock.

#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cache/store/record.h"
#include "cache/worth.h"

namespace fathom {

struct CatalogEntry {
  RecordPlace place;
  uint32_t payload_bytes = 0;
  uint32_t n_uses = 0;
  int64_t created_us = 0;
  double cost = 0;
  double base = 0;  // set by the catalog
};

class Catalog {
 public:
  // The rule outlives the catalog.
  explicit Catalog(const WorthRule& rule = kRecomputeWorth) : rule_(rule) {}

  struct Segment {
    int64_t file_bytes = 0;
    int64_t live_bytes = 0;  // of whole records
    int64_t payload_bytes = 0;
    int64_t n_live = 0;
    double worth = 0;  // of the live ones, priority times bytes
    int64_t oldest_us = INT64_MAX;
    int64_t newest_us = INT64_MIN;
    bool sealed = false;  // nothing is appended any more
  };

  const CatalogEntry* find(const BlockKey& key) const;
  // The key is not there; its segment is.
  void add(const BlockKey& key, CatalogEntry entry);
  // The record was written again elsewhere; it keeps its worth.
  void move(const BlockKey& key, const RecordPlace& place);
  void use(const BlockKey& key);
  // Keys whose number of uses changed, as far as it counts, since the last call; each at most
  // RecomputeWorth::kUsesMax times in all.
  std::vector<BlockKey> take_used() { return std::exchange(used_, {}); }
  // Whether it was there.
  bool remove(const BlockKey& key);

  void add_segment(uint32_t number, int64_t file_bytes);
  void set_file_bytes(uint32_t number, int64_t file_bytes);
  void seal(uint32_t number);
  // No record of it is left.
  void remove_segment(uint32_t number);
  const std::map<uint32_t, Segment>& segments() const { return segments_; }

  // Of the sealed segments the one that is worth least a byte.
  std::optional<uint32_t> least() const;
  // A sealed segment all of whose records were created before `us`, or that has none.
  std::optional<uint32_t> older_than(int64_t us) const;

  double priority(const CatalogEntry& entry) const;
  // Of all records, weighted by bytes.
  double mean_priority() const;
  // What is used or added from now on stands above what went with this priority.
  void raise_floor(double priority) { floor_ = priority > floor_ ? priority : floor_; }

  int64_t n_records() const { return static_cast<int64_t>(by_key_.size()); }
  int64_t payload_bytes() const { return payload_bytes_; }
  int64_t file_bytes() const { return file_bytes_; }
  // Stops the program where an invariant does not hold. For tests.
  void check() const;

 private:
  void count_in(const CatalogEntry& entry, int sign);

  const WorthRule& rule_;
  std::unordered_map<BlockKey, CatalogEntry, BlockKeyHash> by_key_;
  std::map<uint32_t, Segment> segments_;
  std::vector<BlockKey> used_;
  double floor_ = 0;
  double worth_ = 0;
  int64_t live_bytes_ = 0;
  int64_t payload_bytes_ = 0;
  int64_t file_bytes_ = 0;
};

}  // namespace fathom
