#pragma once

// SmallDisk: a small file system of its own for a test (tmpfs), seen by the test's process and by
// those that it starts, and by nobody else: what fills it fills no disk. It goes with the object.

#include <sched.h>
#include <sys/mount.h>

#include <cstdint>
#include <filesystem>
#include <string>

namespace fathom {

class SmallDisk {
 public:
  SmallDisk(const std::string& folder, int64_t bytes) : folder_(folder) {
    std::filesystem::create_directories(folder);
    if (::unshare(CLONE_NEWNS) != 0) return;
    if (::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return;
    const std::string size = "size=" + std::to_string(bytes);
    mounted_ = ::mount("none", folder.c_str(), "tmpfs", 0, size.c_str()) == 0;
  }
  ~SmallDisk() {
    if (mounted_) ::umount2(folder_.c_str(), MNT_DETACH);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

  // False where this user may not mount.
  bool mounted() const { return mounted_; }

 private:
  std::string folder_;
  bool mounted_ = false;
};

}  // namespace fathom
