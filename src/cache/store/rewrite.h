#pragma once

// Writing a store's segments anew while nobody has it open: what no row names goes, and the blocks
// of a tenant where they are to be erased. What remains of those is nothing: neither their records
// nor copies of them, nor their rows in the index's file.
//
// Crash order: new records durable, their rows, then the old file goes, then its rows. Whatever
// stops it, every block that was not to go is found as before; run again, it goes on.
//
// Thread rule: functions, any thread.

#include <functional>
#include <optional>
#include <string>

#include "cache/store/append.h"
#include "cache/store/survey.h"

namespace fathom {

struct RewriteOptions {
  std::optional<uint64_t> erase_tenant;
  int64_t segment_bytes = int64_t{256} << 20;  // of new segments
  // Bytes of segments that are done, of so many. False: stop where it is sound to.
  std::function<bool(int64_t done, int64_t all)> progress;
  Disk* disk = nullptr;  // in place of the system's; for tests
};

struct RewriteReport {
  int64_t n_segments = 0;    // that were there
  int64_t n_rewritten = 0;   // of those
  int64_t n_moved = 0;       // blocks in them that stay
  int64_t n_erased = 0;      // records of the tenant, those without a row too
  int64_t n_bad = 0;         // blocks in them that failed their checks, and went
  int64_t bytes_before = 0;  // of segments and index
  int64_t bytes_after = 0;
};

// kExhausted: another process has the store, or the disk has no room for one segment more;
// kInvalid also where the index is unsound: a start makes it anew; kCancelled: progress stopped it.
Result<RewriteReport> rewrite_store(const std::string& folder, const RewriteOptions& options);

}  // namespace fathom
