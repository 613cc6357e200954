#pragma once

// KvSpec: every stream of state that a model keeps, as data. The only place where record sizes
// stand.
//
// Prefix lifetime: streams `main` (E2M1 with one E4M3 scale per 16 channels) and `index` (E2M1 with
// one E8M0 scale per 32) grow with the context and live in blocks of kBlockTokens source tokens. A
// block holds, stream after stream, a plane of payload rows followed by a plane of scale rows.
// Session lifetime: a `window` (E4M3 with one E8M0 scale per 32) of sliding_window rows a layer,
// and the `remainder` of an unfinished group: (a, z), two fp32 rows of head_dim a pending token,
// for each source with ratio > 1. Source: spec/backbone.md 4.1 and 5; docs/design.md section 5.

#include <cstdint>
#include <span>
#include <vector>

#include "base/hash.h"
#include "base/result.h"

namespace fathom {

inline constexpr int64_t kBlockTokens = 64;

// Blocks that hold the entries of this many positions.
constexpr int64_t blocks_for(int64_t positions) {
  return (positions + kBlockTokens - 1) / kBlockTokens;
}

enum class KvRole : uint8_t { kMain, kIndex, kWindow, kRemainder };
enum class KvLifetime : uint8_t { kPrefix, kSession };

struct KvStream {
  KvRole role = KvRole::kMain;
  int layer = 0;
  int ratio = 1;               // source tokens a row (main, index); 1 for windows
  int64_t rows = 0;            // in a block (prefix) or in a session slot
  int64_t payload_bytes = 0;   // a row
  int64_t scale_bytes = 0;     // a row
  int64_t payload_offset = 0;  // of the payload plane, in a block or in a session slot
  int64_t scale_offset = 0;    // of the scale plane

  int64_t record_bytes() const { return payload_bytes + scale_bytes; }
  KvLifetime lifetime() const {
    return role == KvRole::kMain || role == KvRole::kIndex ? KvLifetime::kPrefix
                                                           : KvLifetime::kSession;
  }
};

// What of a configuration decides the streams.
struct KvGeometry {
  struct Source {
    int layer = 0;
    int ratio = 1;
  };
  int n_layers = 0;
  int64_t head_dim = 0;
  int64_t index_head_dim = 0;
  int64_t sliding_window = 0;
  std::vector<Source> sources;  // ascending layers
};

class KvSpec {
 public:
  // Refuses widths that do not fill their scale blocks and ratios that do not divide kBlockTokens.
  static Result<KvSpec> make(const KvGeometry& geometry);

  std::span<const KvStream> streams() const { return streams_; }
  const KvStream& stream(KvRole role, int layer) const;  // must exist

  int64_t block_bytes() const { return block_bytes_; }
  int64_t window_bytes() const { return window_bytes_; }        // a sequence: the windows alone
  int64_t remainder_bytes() const { return remainder_bytes_; }  // a sequence
  int64_t session_bytes() const { return session_bytes_; }      // a slot: both, with alignment
  // Names the layout: equal for two specs exactly where their records lie at the same places.
  Sha256Digest id() const;
  // Exact because block_bytes is whole; 890 for the released model.
  double bytes_per_token() const { return static_cast<double>(block_bytes_) / kBlockTokens; }

 private:
  std::vector<KvStream> streams_;
  int64_t block_bytes_ = 0;
  int64_t window_bytes_ = 0;
  int64_t remainder_bytes_ = 0;
  int64_t session_bytes_ = 0;
};

}  // namespace fathom
