#pragma once

// SharedFolder: the files of a shared store. One record a file, under the name of its key in the
// folder of the key's first byte, so that whoever knows a key finds it without an index, and the
// first to give a file its name is the one who wrote it:
//
//   shared.fathom   whose it is, as a store's card
//   7f/7f03...e1    a record (cache/store/record.h); its place is the first bytes of its key
//   7f/7f03...e1.12-3.tmp   on its way
//
// The time of a file's last change is when its block was written, that of its last access when it
// was used last. Thread rule: any thread, any process, any machine that has the folder.

#include <cstdint>
#include <string>
#include <unordered_set>
#include <vector>

#include "cache/store/record.h"

namespace fathom {

inline constexpr int64_t kShards = 256;

struct SharedFile {
  BlockKey key;
  int64_t bytes = 0;
  int64_t created_us = 0;
  int64_t used_us = 0;
};

// What a shard's folder holds.
struct SharedListing {
  std::vector<SharedFile> files;  // that were not known
  std::vector<BlockKey> known;    // that were, and are there
  int64_t temporary_bytes = 0;    // of files on their way, whoever writes them
};

class SharedFolder {
 public:
  // Makes the folder where it is missing, and makes it a shared store where it is empty. Fails with
  // one line that names it: kNotFound, kInvalid (another identity or format; files of somebody
  // else), kIo. Nothing is removed or written over then.
  static Result<SharedFolder> open(const std::string& path, const StoreIdentity& identity);

  static int64_t shard_of(const BlockKey& key) { return key.digest[0]; }
  static RecordPlace place_of(const BlockKey& key);

  // Changes when names come or go; -1: there is no such folder yet.
  int64_t shard_change_us(int64_t shard) const;
  // Looks closer at what is not known alone. Removes what dead writers have left there for an hour.
  using Keys = std::unordered_set<BlockKey, BlockKeyHash>;
  Result<SharedListing> list(int64_t shard, const Keys& known, int64_t now_us) const;

  // The record under its key, durable before it has its name. False: one has it already.
  Result<bool> publish(const BlockKey& key, std::span<const std::byte> record,
                       int64_t created_us) const;
  // Its bytes, at most max_bytes; kNotFound.
  Result<std::vector<std::byte>> read(const BlockKey& key, int64_t max_bytes) const;
  // kNotFound.
  Result<SharedFile> look(const BlockKey& key) const;
  void touch(const BlockKey& key, int64_t now_us) const;  // as far as the system lets us
  void remove(const BlockKey& key) const;

 private:
  explicit SharedFolder(std::string path) : path_(std::move(path)) {}

  std::string folder_of(int64_t shard) const;
  std::string path_of(const BlockKey& key) const;

  std::string path_;
};

}  // namespace fathom
