#pragma once

// How many connections the process may have open.

#include <cstdint>

namespace fathom {

// Files that the program has open beside its connections, at most.
inline constexpr int64_t kFilesBeside = 64;

// Of `wanted` connections, as many as the limit of open files has room for. Raises the soft limit
// as far as that needs, up to the hard one.
int64_t connections_allowed(int64_t wanted);

}  // namespace fathom
