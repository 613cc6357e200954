#pragma once

#include <cstdint>

namespace fathom {

// Bytes that new allocations may take without swapping: MemAvailable of the kernel, bounded by the
// address space and data limits of the process. A very large number where the system does not say.
uint64_t available_memory_bytes();

}  // namespace fathom
