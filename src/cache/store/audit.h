#pragma once

// Whether a store is what it should be: every segment and record read and verified, the index held
// against them. Only reads. Thread rule: functions, any thread.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cache/store/survey.h"

namespace fathom {

struct AuditOptions {
  // Of a sealed store: every payload is unsealed, too. Without it checksums are verified.
  std::optional<SecretKey> key;
  // Bytes of segments that were read, of so many. False: stop.
  std::function<bool(int64_t done, int64_t all)> progress;
};

struct AuditReport {
  int64_t n_segments = 0;
  int64_t n_blocks = 0;  // sound records that the index knows
  int64_t bytes = 0;     // of segments
  // Sound records without a row: forgotten, copied elsewhere, or not yet adopted after a crash.
  int64_t n_unindexed = 0;
  // Bytes that are no record and that no row names: what a writer that died left. No damage.
  int64_t torn_bytes = 0;
  std::vector<std::string> problems;  // a line each: file, byte, what
};

// Also of a store that another process has open: of what that changes meanwhile nothing is said.
// kCancelled where progress stopped it; kInvalid where the key is not the store's; else fails as
// survey_store does.
Result<AuditReport> audit_store(const std::string& folder, const AuditOptions& options);

}  // namespace fathom
