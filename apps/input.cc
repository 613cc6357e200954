#include "apps/input.h"

#include <cstdio>

#include "base/file.h"

namespace fathom {
namespace {

Result<std::string> read_standard_input(uint64_t max_bytes) {
  std::string text;
  char piece[65536];
  while (const size_t n = std::fread(piece, 1, sizeof(piece), stdin)) {
    text.append(piece, n);
    if (text.size() <= max_bytes) continue;
    return exhausted("standard input: wanted at most " + std::to_string(max_bytes) + " bytes");
  }
  if (std::ferror(stdin) != 0) return io_error("standard input: cannot read");
  return text;
}

}  // namespace

Result<std::string> read_input(const std::string& file, uint64_t max_bytes) {
  return file.empty() ? read_standard_input(max_bytes) : read_file(file, max_bytes);
}

}  // namespace fathom
