#pragma once

#include <cstdint>
#include <string>

namespace fathom {

// Bytes that new allocations may take without swapping: MemAvailable of the kernel, bounded by the
// address space and data limits of the process and by its control groups. A very large number where
// the system does not say.
uint64_t available_memory_bytes();

// What the control groups of a process leave: over its group and all groups above it the least of
// limit minus use, where pages of files that the kernel may drop do not count as used. Versions 2
// and 1. `membership` is the text of /proc/self/cgroup, `mount` the folder /sys/fs/cgroup. A very
// large number where there is no limit.
uint64_t cgroup_memory_bytes(const std::string& membership, const std::string& mount);

}  // namespace fathom
