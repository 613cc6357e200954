#pragma once

// Duplicates: exact (SHA-256 of the text), near (64-byte shingles), and lines that a package
// repeats on many pages (navigation, footers). All decisions depend on the order of the calls
// alone.

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace fathom::train {

// Remembers sampled hashes of all 64-byte windows of the accepted texts. Windows are sampled by the
// value of their rolling hash, so equal passages give equal samples wherever they stand.
class NearDuplicates {
 public:
  // The share of the text's sampled windows that accepted texts hold already; 0 for a text that is
  // shorter than a window.
  double seen_share(std::string_view text) const;

  // Accepts a text.
  void add(std::string_view text);

 private:
  std::unordered_set<uint64_t> seen_;
};

// Removes from every page the lines (blanks at the ends ignored) that stand on more than max_share
// of the pages and on at least min_pages of them. Empty lines stay; runs of them become one.
void drop_repeated_lines(std::vector<std::string>& pages, double max_share, int min_pages);

}  // namespace fathom::train
