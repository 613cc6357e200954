#pragma once

// What a process of this user holds, as the kernel says.

#include <cstdint>
#include <string>

namespace fathom {

struct Holding {
  int64_t resident_bytes = 0;
  int64_t anonymous_bytes = 0;  // of those, what no file has
  int64_t sockets = 0;          // descriptors
  int64_t store_files = 0;      // descriptors of files of the store
  int64_t other_files = 0;      // all other descriptors
  int64_t store_bytes = 0;      // of the files in the store's folder
};

// Zeros where there is no such process.
Holding holding_of(int pid, const std::string& store);

}  // namespace fathom
