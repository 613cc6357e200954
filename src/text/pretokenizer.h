#pragma once

// Cuts a text into the pieces that BPE works on.
//
// Any bytes are accepted. A maximal run of ill-formed UTF-8 is one piece, and the well-formed text
// on either side of it is cut as if it stood alone; nothing is lost.
//
// Thread rule: split() may run in several threads.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/regex_split.h"
#include "text/released_split.h"

namespace fathom {

class Pretokenizer {
 public:
  using Scratch = RegexSplit::Scratch;

  static Result<Pretokenizer> create(const std::vector<std::string>& patterns);

  // Appends to *ends the end of every piece of `text`. Pieces are not empty and cover the text.
  // kExhausted as RegexSplit::split; then *ends is of no use.
  Result<void> split(std::string_view text, Scratch* scratch, std::vector<size_t>* ends) const;

 private:
  Result<void> split_valid(std::string_view text, size_t base, Scratch* scratch,
                           std::vector<size_t>* ends) const;

  // One of the two.
  std::optional<RegexSplit> regex_;
  std::optional<ReleasedSplit> released_;
};

}  // namespace fathom
