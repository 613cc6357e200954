#pragma once

// What a store's folder holds, read without its lock and without writing: beside a process that has
// the store open, and where nothing can be written.
//
// Thread rule: functions, any thread.

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/store/index.h"
#include "cache/store/record.h"

namespace fathom {

struct StoreSurvey {
  std::string folder;
  StoreIdentity identity;
  std::map<uint32_t, int64_t> segments;  // bytes of each file
  int64_t index_bytes = 0;
  std::string index_fault;     // why there are no rows; empty: they are sound
  std::vector<IndexRow> rows;  // in the order of their places

  int64_t bytes() const;  // of segments and index
  std::span<const IndexRow> rows_of(uint32_t segment) const;
};

std::string card_path(const std::string& folder);

// kNotFound: no such folder; kInvalid: no store, or one of another format; kIo.
Result<StoreSurvey> survey_store(const std::string& folder);

// The key that begins with these 16 to 64 hexadecimal digits; kNotFound where no row has such a
// one, kInvalid where several have.
Result<BlockKey> find_key(const StoreSurvey& survey, const std::string& digits);

// The blocks from the first one of its prefix to that of `key`, in this order; kNotFound, with the
// block that has no row.
Result<std::vector<IndexRow>> chain_to(const StoreSurvey& survey, const BlockKey& key);

// As messages name a block.
std::string short_key(const BlockKey& key);

// Blocks of one tenant, or all.
struct StoreTotals {
  int64_t n_blocks = 0;
  int64_t payload_bytes = 0;
  int64_t record_bytes = 0;  // headers and padding included
};
StoreTotals totals_of(std::span<const IndexRow> rows);

// How a tenant's tag is written: 16 hexadecimal digits.
std::string tag_text(uint64_t tenant_tag);
// kInvalid where it is no such text.
Result<uint64_t> parse_tag(std::string_view text);

}  // namespace fathom
