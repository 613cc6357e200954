#pragma once

// This program's operator new: as any, until it is told to refuse large pieces of memory.

#include <cstddef>

namespace fathom {

// Any thread; in force for all of them.
void refuse_pieces_above(size_t n_bytes);

}  // namespace fathom
