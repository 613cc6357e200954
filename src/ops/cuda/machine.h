#pragma once

// What this GPU's memory gives at best.

#include "base/result.h"

namespace fathom::cuda {

// Bytes a second of reading 2 GiB, the best of several times.
Result<double> read_bytes_per_s();

}  // namespace fathom::cuda
