#pragma once

// The files of the repository as values, so that a rule can be tried on a few lines of text.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace fathom::tidy {

// One thing that a rule found. line is 1-based; 0 speaks of the whole file.
struct Complaint {
  std::string path;
  int line = 0;
  std::string rule;
  std::string message;
};

std::string to_string(const Complaint& complaint);

// Tracked files by path relative to the root. text is empty for data (see is_text), bytes is not.
struct Tree {
  struct File {
    std::string text;
    int64_t bytes = 0;
  };
  std::map<std::string, File> files;

  bool has(const std::string& path) const { return files.count(path) != 0; }
  void add(const std::string& path, std::string text);
};

// Reads what git tracks below root. Without git (an unpacked archive) every file outside build/.
Tree read_tree(const std::string& root);

bool starts_with(std::string_view text, std::string_view prefix);
bool ends_with(std::string_view text, std::string_view suffix);
std::vector<std::string> lines_of(const std::string& text);
std::string folder_of(const std::string& path);
std::string file_of(const std::string& path);

// Source in C++ or CUDA; headers alone; test data that no rule about text applies to.
bool is_source(const std::string& path);
bool is_header(const std::string& path);
bool is_data(const std::string& path);

}  // namespace fathom::tidy
