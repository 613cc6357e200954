#include "cache/store/shared_catalog.h"

#include <algorithm>

#include "base/check.h"

namespace fathom {

const SharedCatalog::Entry* SharedCatalog::find(const BlockKey& key) const {
  const Shard& shard = shards_.at(static_cast<size_t>(SharedFolder::shard_of(key)));
  const auto found = shard.find(key);
  return found == shard.end() ? nullptr : &found->second;
}

void SharedCatalog::add(const SharedFile& file, int64_t look) {
  const auto [entry, added] = shard_of(file.key).try_emplace(file.key);
  Entry& known = entry->second;
  if (!added) {
    by_use_.erase({known.used_us, file.key});
    file_bytes_ -= known.bytes;
  }
  known.bytes = file.bytes;
  known.created_us = file.created_us;
  known.used_us = std::max(known.used_us, file.used_us);
  known.look = std::max(known.look, look);
  by_use_.insert({known.used_us, file.key});
  file_bytes_ += known.bytes;
}

void SharedCatalog::use(const BlockKey& key, int64_t now_us) {
  Shard& shard = shard_of(key);
  const auto found = shard.find(key);
  if (found == shard.end()) return;
  by_use_.erase({found->second.used_us, key});
  found->second.used_us = std::max(found->second.used_us, now_us);
  by_use_.insert({found->second.used_us, key});
}

bool SharedCatalog::remove(const BlockKey& key) {
  Shard& shard = shard_of(key);
  const auto found = shard.find(key);
  if (found == shard.end()) return false;
  by_use_.erase({found->second.used_us, key});
  file_bytes_ -= found->second.bytes;
  shard.erase(found);
  return true;
}

void SharedCatalog::merge(int64_t shard, const SharedListing& listing, int64_t look) {
  Shard& of = shards_.at(static_cast<size_t>(shard));
  for (const SharedFile& file : listing.files) add(file, look);
  for (const BlockKey& key : listing.known) {
    const auto found = of.find(key);
    if (found != of.end()) found->second.look = std::max(found->second.look, look);
  }
  std::vector<BlockKey> gone;
  for (const auto& [key, entry] : of) {
    if (entry.look < look) gone.push_back(key);
  }
  for (const BlockKey& key : gone) remove(key);
  int64_t& temporary = temporary_of_.at(static_cast<size_t>(shard));
  temporary_bytes_ += listing.temporary_bytes - temporary;
  temporary = listing.temporary_bytes;
}

SharedFile SharedCatalog::first_to_go() const {
  FATHOM_CHECK(!by_use_.empty());
  const auto& [used_us, key] = *by_use_.begin();
  const Entry& entry = *find(key);
  return {.key = key, .bytes = entry.bytes, .created_us = entry.created_us, .used_us = used_us};
}

}  // namespace fathom
