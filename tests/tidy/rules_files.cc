#include <regex>

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

// A file, or a folder that holds one.
bool exists(const Tree& tree, const std::string& path) {
  if (tree.has(path)) return true;
  const std::string folder = ends_with(path, "/") ? path : path + "/";
  const auto at = tree.files.lower_bound(folder);
  return at != tree.files.end() && starts_with(at->first, folder);
}

// "spec/X.md" and "tests/golden/X" in a line, as paths from the root; names that go on as a pattern
// or are put together in code end before.
std::vector<std::string> citations(const std::string& line) {
  static const std::regex kCitation(
      R"((^|[^\w])((docs/)?spec/[\w-]+\.md|tests/golden/[\w./-]*)([*<{$])?)");
  std::vector<std::string> paths;
  const auto end = std::sregex_iterator();
  for (auto it = std::sregex_iterator(line.begin(), line.end(), kCitation); it != end; ++it) {
    std::string path = (*it)[2];
    if ((*it)[4].matched) path.resize(path.rfind('/') + 1);
    while (ends_with(path, ".")) path.pop_back();
    paths.push_back(starts_with(path, "spec/") ? "docs/" + path : path);
  }
  return paths;
}

}  // namespace

Complaints check_citations(const Tree& tree) {
  Complaints found;
  for (const auto& [path, file] : tree.files) {
    if (is_data(path) || starts_with(path, "tests/tidy/")) continue;
    int number = 0;
    for (const std::string& line : lines_of(file.text)) {
      ++number;
      for (const std::string& cited : citations(line)) {
        if (exists(tree, cited)) continue;
        found.push_back({path, number, "citations", "there is no " + cited});
      }
    }
  }
  return found;
}

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
