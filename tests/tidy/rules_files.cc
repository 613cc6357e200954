#include "rules.h"

namespace fathom::tidy {
namespace {

constexpr int64_t kKiB = 1024;
constexpr int64_t kMaxFileBytes = 512 * kKiB;
constexpr int64_t kMaxGoldenBytes = 4096 * kKiB;
constexpr int64_t kMaxModelBytes = 16384 * kKiB;
constexpr int64_t kMaxTotalBytes = 57 * 1000 * 1000;

int64_t limit_of(const std::string& path) {
  if (starts_with(path, "tests/golden/")) return kMaxGoldenBytes;
  if (starts_with(path, "models/")) return kMaxModelBytes;
  return kMaxFileBytes;
}

// Headings of the first level outside fenced code.
int count_titles(const std::string& text) {
  int titles = 0;
  bool fenced = false;
  for (const std::string& line : lines_of(text)) {
    if (starts_with(line, "```")) fenced = !fenced;
    if (!fenced && starts_with(line, "# ")) ++titles;
  }
  return titles;
}

}  // namespace

Complaints check_documents(const Tree& tree) {
  Complaints found;
  for (const auto& [path, file] : tree.files) {
    if (!ends_with(path, ".md") || is_data(path)) continue;
    const int titles = count_titles(file.text);
    if (titles == 1 && starts_with(file.text, "# ")) continue;
    found.push_back({path, 1, "documents",
                     "wanted one # title, on the first line, found " + std::to_string(titles)});
  }
  return found;
}

Complaints check_file_sizes(const Tree& tree) {
  Complaints found;
  int64_t total = 0;
  for (const auto& [path, file] : tree.files) {
    total += file.bytes;
    if (file.bytes <= limit_of(path)) continue;
    found.push_back(
        {path, 0, "size",
         std::to_string(file.bytes) + " bytes, wanted at most " + std::to_string(limit_of(path))});
  }
  if (total >= kMaxTotalBytes) {
    found.push_back({".", 0, "size",
                     "all tracked files have " + std::to_string(total) +
                         " bytes, wanted less than " + std::to_string(kMaxTotalBytes)});
  }
  return found;
}

}  // namespace fathom::tidy
