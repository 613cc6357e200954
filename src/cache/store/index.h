#pragma once

// StoreIndex: the rows of a store's records, on disk, in the order of their places (LMDB). A row is
// committed after its record is durable. Every row carries a checksum. All that it says can be read
// from the segments again: the file may be removed at any time that the store is closed.
//
// Thread rule: one thread at a time.

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cache/store/record.h"

namespace fathom {

struct IndexRow {
  RecordHead head;
  uint32_t n_uses = 0;  // when the row was written
};

// Of a row, in the file.
inline constexpr size_t kIndexKeyBytes = 8;
inline constexpr size_t kIndexRowBytes = 120;

class StoreIndex {
 public:
  // Opens or makes the file; it never grows above max_bytes. An existing one is read with every
  // bound checked first (check_index_file): kInvalid where it is unsound.
  static Result<StoreIndex> open(const std::string& path, int64_t max_bytes);

  StoreIndex(StoreIndex&& other) noexcept;
  StoreIndex& operator=(StoreIndex&& other) noexcept;
  ~StoreIndex();

  // All rows, in the order of their places; kInvalid where one fails its checksum.
  Result<std::vector<IndexRow>> rows() const;
  Result<std::vector<IndexRow>> rows_of(uint32_t segment) const;

  struct Change {
    std::vector<IndexRow> add;
    std::vector<RecordPlace> remove;  // rows that need not be there
    std::vector<uint32_t> remove_segments;
    std::vector<std::pair<RecordPlace, uint32_t>> n_uses;  // of rows that are there and sound
    bool is_empty() const {
      return add.empty() && remove.empty() && remove_segments.empty() && n_uses.empty();
    }
  };
  // All of it or nothing, and durable. After a failure the index is not to be written again.
  Result<void> commit(const Change& change);

  int64_t file_bytes() const;

 private:
  struct Environment;
  explicit StoreIndex(std::unique_ptr<Environment> environment);

  std::unique_ptr<Environment> environment_;
};

// Walks the trees of an LMDB file of format 1 without believing a number in it: pages in range and
// reached once, nodes inside their pages, free pages free. LMDB itself has no checksums, and
// follows whatever stands there. kInvalid, with the page. `rows`, where there is one, takes the
// bytes of each row, behind those of its key.
Result<void> check_index_file(std::span<const std::byte> file,
                              std::vector<std::span<const std::byte>>* rows = nullptr);

// The rows in the bytes of an index's file, in the order of their places: without LMDB, which could
// not open a file that another process writes. kInvalid where it is unsound or a row fails its
// checksum.
Result<std::vector<IndexRow>> read_index(std::span<const std::byte> file);

}  // namespace fathom
