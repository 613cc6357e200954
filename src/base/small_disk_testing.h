#pragma once

// A small file system of its own for a test (tmpfs), seen by the test's process and by those that
// it starts, and by nobody else: what fills it fills no disk. It goes with the process.

#include <sched.h>
#include <sys/mount.h>

#include <cstdint>
#include <filesystem>
#include <string>

namespace fathom {

// False where this user may not mount.
inline bool mount_small_disk(const std::string& folder, int64_t bytes) {
  std::filesystem::create_directories(folder);
  if (::unshare(CLONE_NEWNS) != 0) return false;
  if (::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return false;
  const std::string size = "size=" + std::to_string(bytes);
  return ::mount("none", folder.c_str(), "tmpfs", 0, size.c_str()) == 0;
}

}  // namespace fathom
