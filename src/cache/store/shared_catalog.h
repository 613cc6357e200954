#pragma once

// SharedCatalog: what a process knows of the blocks of a shared folder, as of its last look there
// and what it did itself since; and which goes first, the one that was used least lately. Thread
// rule: none of its own.

#include <array>
#include <set>
#include <unordered_map>
#include <utility>

#include "cache/store/shared_folder.h"

namespace fathom {

class SharedCatalog {
 public:
  struct Entry {
    int64_t bytes = 0;
    int64_t created_us = 0;
    int64_t used_us = 0;
    int64_t look = 0;  // the last one that has seen it, or in which it was added
  };

  const Entry* find(const BlockKey& key) const;
  // Adds it or takes over what is newer.
  void add(const SharedFile& file, int64_t look);
  void use(const BlockKey& key, int64_t now_us);
  // Whether it was there.
  bool remove(const BlockKey& key);

  // What look number `look` found in a shard: what is not in it any more is dropped, but for what
  // was added since that look began.
  void merge(int64_t shard, const SharedListing& listing, int64_t look);

  // Used least lately; there must be one.
  SharedFile first_to_go() const;

  int64_t n_blocks() const { return static_cast<int64_t>(by_use_.size()); }
  int64_t bytes() const { return file_bytes_ + temporary_bytes_; }

  using Shard = std::unordered_map<BlockKey, Entry, BlockKeyHash>;
  const Shard& shard(int64_t number) const { return shards_.at(static_cast<size_t>(number)); }

 private:
  Shard& shard_of(const BlockKey& key) {
    return shards_.at(static_cast<size_t>(SharedFolder::shard_of(key)));
  }

  std::array<Shard, kShards> shards_;
  std::array<int64_t, kShards> temporary_of_ = {};
  std::set<std::pair<int64_t, BlockKey>> by_use_;
  int64_t file_bytes_ = 0;
  int64_t temporary_bytes_ = 0;
};

}  // namespace fathom
