#include "tree.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace fathom::tidy {
namespace {

constexpr int64_t kMaxTextBytes = 1 << 20;

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

std::vector<std::string> tracked_paths(const std::string& root) {
  std::vector<std::string> paths;
  const std::string command = "git -C '" + root + "' ls-files -z 2>/dev/null";
  std::FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return paths;
  std::string path;
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) {
    if (c != 0) {
      path.push_back(static_cast<char>(c));
      continue;
    }
    paths.push_back(path);
    path.clear();
  }
  pclose(pipe);
  return paths;
}

std::vector<std::string> all_paths(const std::string& root) {
  std::vector<std::string> paths;
  for (auto it = std::filesystem::recursive_directory_iterator(root);
       it != std::filesystem::recursive_directory_iterator(); ++it) {
    const std::string path = std::filesystem::relative(it->path(), root).string();
    if (path == "build" || path == ".git") it.disable_recursion_pending();
    if (it->is_regular_file()) paths.push_back(path);
  }
  return paths;
}

}  // namespace

std::string to_string(const Complaint& complaint) {
  return complaint.path + ":" + std::to_string(complaint.line) + ": " + complaint.rule + ": " +
         complaint.message;
}

void Tree::add(const std::string& path, std::string text) {
  const auto bytes = static_cast<int64_t>(text.size());
  files[path] = File{std::move(text), bytes};
}

Tree read_tree(const std::string& root) {
  std::vector<std::string> paths = tracked_paths(root);
  if (paths.empty()) paths = all_paths(root);
  Tree tree;
  for (const std::string& path : paths) {
    std::error_code gone;
    const auto bytes = std::filesystem::file_size(root + "/" + path, gone);
    if (gone) continue;  // deleted, but not yet committed
    const auto size = static_cast<int64_t>(bytes);
    const bool as_text = size <= kMaxTextBytes && !is_data(path);
    tree.files[path] = Tree::File{as_text ? read_file(root + "/" + path) : "", size};
  }
  return tree;
}

bool starts_with(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}

bool ends_with(std::string_view text, std::string_view suffix) {
  return text.size() >= suffix.size() && text.substr(text.size() - suffix.size()) == suffix;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

std::string file_of(const std::string& path) { return path.substr(path.rfind('/') + 1); }

bool is_header(const std::string& path) { return ends_with(path, ".h") || ends_with(path, ".cuh"); }

bool is_source(const std::string& path) {
  return is_header(path) || ends_with(path, ".cc") || ends_with(path, ".cu");
}

bool is_data(const std::string& path) {
  return starts_with(path, "tests/golden/") || starts_with(path, "tests/fuzz/") ||
         starts_with(path, "models/");
}

}  // namespace fathom::tidy
