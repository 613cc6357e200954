#pragma once

// Two looks at every byte of a checkpoint, both in parallel.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/thread_pool.h"
#include "checkpoint/checkpoint.h"

namespace fathom {

// SHA-256 of the weights, whatever files they stand in: over the tensors in ascending order of
// their names, each as name, dtype, shape and the digests of its bytes in pieces of 16 MiB, every
// part framed by its length.
Sha256Digest weights_fingerprint(const Checkpoint& checkpoint, ThreadPool& pool);

// The digest in .fathom-fingerprint beside the files, where there is a note and it is of these
// files; nothing is computed.
std::optional<Sha256Digest> noted_fingerprint(const Checkpoint& checkpoint);

// The same as weights_fingerprint, kept beside the files in .fathom-fingerprint together with name,
// size, modification time and inode of each. A note that does not match the files is ignored and
// replaced; where it cannot be written, the digest is computed every time.
Sha256Digest cached_fingerprint(const Checkpoint& checkpoint, ThreadPool& pool);

// Values that no weight may have: NaN codes of E4M3 and E8M0, NaN and infinity of BF16 and F32.
// One line for each tensor that has some, with their number and the first position. `progress` may
// be null; it is called now and then by the calling thread, with bytes.
std::vector<std::string> find_bad_codes(
    const Checkpoint& checkpoint, ThreadPool& pool,
    const std::function<void(int64_t done, int64_t all)>& progress = {});

}  // namespace fathom
