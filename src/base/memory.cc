#include "base/memory.h"

#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <string_view>

namespace fathom {
namespace {

constexpr uint64_t kUnlimited = std::numeric_limits<uint64_t>::max();

// The files of a memory controller, and the names that its statistics give to pages of files.
struct Controller {
  std::string folder;  // below the mount: "" or "/memory"
  const char* limit;
  const char* used;
  const char* inactive;
  const char* active;
};

const Controller kVersion2 = {"", "/memory.max", "/memory.current", "inactive_file", "active_file"};
const Controller kVersion1 = {"/memory", "/memory.limit_in_bytes", "/memory.usage_in_bytes",
                              "total_inactive_file", "total_active_file"};

// The number in a file; kUnlimited for "max" and where there is no such file.
uint64_t read_number(const std::string& path) {
  std::ifstream file(path);
  uint64_t number = 0;
  return file >> number ? number : kUnlimited;
}

uint64_t file_pages(const std::string& path, const Controller& controller) {
  std::ifstream file(path);
  std::string key;
  uint64_t bytes = 0;
  uint64_t sum = 0;
  while (file >> key >> bytes) {
    if (key == controller.inactive || key == controller.active) sum += bytes;
  }
  return sum;
}

uint64_t left_in_group(const std::string& folder, const Controller& controller) {
  const uint64_t limit = read_number(folder + controller.limit);
  const uint64_t used = read_number(folder + controller.used);
  if (limit == kUnlimited || used == kUnlimited) return kUnlimited;
  const uint64_t held = used - std::min(used, file_pages(folder + "/memory.stat", controller));
  return limit - std::min(limit, held);
}

// The group and all above it. In a container the path may be the host's: then only the mount is
// there, and it is the container's own group.
uint64_t left_in_groups(std::string path, const std::string& mount, const Controller& controller) {
  uint64_t left = left_in_group(mount + controller.folder, controller);
  while (path.size() > 1) {
    left = std::min(left, left_in_group(mount + controller.folder + path, controller));
    path.resize(path.rfind('/'));
  }
  return left;
}

bool lists(const std::string& controllers, std::string_view name) {
  std::istringstream names(controllers);
  for (std::string one; std::getline(names, one, ',');) {
    if (one == name) return true;
  }
  return false;
}

std::string read_text(const char* path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

uint64_t cgroup_memory_bytes(const std::string& membership, const std::string& mount) {
  uint64_t left = kUnlimited;
  std::istringstream lines(membership);
  for (std::string line; std::getline(lines, line);) {  // ID:CONTROLLERS:/PATH
    const size_t first = line.find(':');
    const size_t second = line.find(':', first == std::string::npos ? first : first + 1);
    if (second == std::string::npos || line.compare(second + 1, 1, "/") != 0) continue;
    const std::string path = line.substr(second + 1);
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (controllers.empty()) left = std::min(left, left_in_groups(path, mount, kVersion2));
    if (lists(controllers, "memory")) left = std::min(left, left_in_groups(path, mount, kVersion1));
  }
  return left;
}

uint64_t available_memory_bytes() {
  uint64_t available = kUnlimited;
  std::ifstream meminfo("/proc/meminfo");
  std::string key;
  uint64_t kib = 0;
  std::string unit;
  while (meminfo >> key >> kib >> unit) {
    if (key != "MemAvailable:") continue;
    available = kib * 1024;
    break;
  }
  for (const int resource : {RLIMIT_AS, RLIMIT_DATA}) {
    struct rlimit limit = {};
    if (::getrlimit(static_cast<__rlimit_resource>(resource), &limit) == 0 &&
        limit.rlim_cur != RLIM_INFINITY) {
      available = std::min<uint64_t>(available, limit.rlim_cur);
    }
  }
  return std::min(available, cgroup_memory_bytes(read_text("/proc/self/cgroup"), "/sys/fs/cgroup"));
}

}  // namespace fathom
