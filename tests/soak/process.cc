#include "process.h"

#include <filesystem>
#include <fstream>

namespace fathom {

Holding holding_of(int pid, const std::string& store) {
  namespace fs = std::filesystem;
  Holding holding;
  const std::string process = "/proc/" + std::to_string(pid);
  std::ifstream status(process + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmRSS:")) holding.resident_bytes = std::stol(line.substr(6)) * 1024;
    if (line.starts_with("RssAnon:")) holding.anonymous_bytes = std::stol(line.substr(8)) * 1024;
  }
  std::error_code failure;
  for (fs::directory_iterator it(process + "/fd", failure), end; !failure && it != end;
       it.increment(failure)) {
    std::error_code closed_meanwhile;
    const std::string target = fs::read_symlink(it->path(), closed_meanwhile).string();
    if (closed_meanwhile) continue;
    const bool is_socket = target.starts_with("socket:");
    const bool of_store = target == store || target.starts_with(store + "/");
    ++(is_socket ? holding.sockets : of_store ? holding.store_files : holding.other_files);
  }
  for (fs::directory_iterator it(store, failure), end; !failure && it != end;
       it.increment(failure)) {
    std::error_code removed_meanwhile;
    const auto bytes = it->file_size(removed_meanwhile);
    if (!removed_meanwhile) holding.store_bytes += static_cast<int64_t>(bytes);
  }
  return holding;
}

}  // namespace fathom
