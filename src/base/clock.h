#pragma once

#include <cstdint>

namespace fathom {

// Seconds of a clock that only goes forward, since any start.
double steady_seconds();

// The time of day, since 1970; it may be set back.
int64_t unix_microseconds();

}  // namespace fathom
