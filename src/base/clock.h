#pragma once

namespace fathom {

// Seconds of a clock that only goes forward, since any start.
double steady_seconds();

}  // namespace fathom
