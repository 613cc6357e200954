#pragma once

// A prefix as one file: the blocks of a store from a first one to one that is named, in a row. A
// page of text that says whose it is (the card of a store, how many blocks, the last key, a
// checksum of itself), then records as they stand in segments, their places those in the file,
// whose number is 0. Every byte of it is checked.
//
// A sealed store's prefix leaves it sealed as it is, with the salt that its key needs, unless
// `clear` says otherwise. Thread rule: functions, any thread.

#include <functional>
#include <optional>
#include <string>

#include "cache/store/disk.h"
#include "cache/store/survey.h"

namespace fathom {

// Bytes that are done, of so many. False: stop.
using PrefixProgress = std::function<bool(int64_t done, int64_t all)>;

struct ExportOptions {
  bool clear = false;            // unseals payloads, which takes the store's key
  std::optional<SecretKey> key;  // for `clear` alone
  PrefixProgress progress;
};

struct PrefixReport {
  BlockKey last;
  int64_t n_blocks = 0;
  int64_t n_added = 0;  // by an import; the others were there
  int64_t payload_bytes = 0;
  int64_t file_bytes = 0;
  bool sealed = false;  // the file
};

// Writes the prefix that ends with the block to `path`, whole or not at all; reads the store
// without its lock. `block`: 16 to 64 hexadecimal digits that its key begins with. kNotFound where
// it, or a block before it, is not there; kInvalid where a record fails its checks, and for wrong
// keys.
Result<PrefixReport> export_prefix(const std::string& folder, const std::string& block,
                                   const std::string& path, const ExportOptions& options);

struct ImportOptions {
  std::optional<SecretKey> key;       // of the store, where it is sealed
  std::optional<SecretKey> file_key;  // of the file, where it is; none: the store's
  bool clear = false;                 // a sealed file may go into a store in clear
  int64_t segment_bytes = int64_t{256} << 20;
  PrefixProgress progress;
  Disk* disk = nullptr;  // in place of the system's; for tests
};

// Adds the blocks of the file that the store does not have; their time is now. All of the file is
// verified before anything is written. kInvalid: another model's, a damaged file, blocks that are
// no chain, wrong keys; kExhausted: another process has the store, or the disk no room.
Result<PrefixReport> import_prefix(const std::string& folder, const std::string& path,
                                   const ImportOptions& options);

}  // namespace fathom
