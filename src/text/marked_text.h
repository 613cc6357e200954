#pragma once

// Text together with the byte ranges that hold the renderer's own markers. Only these ranges are
// encoded as special tokens (spec/tokenizer.md 3); everything else is plain text whatever it
// spells.

#include <string>
#include <string_view>
#include <vector>

#include "text/token.h"

namespace fathom {

struct MarkedText {
  std::string text;
  std::vector<ByteRange> markers;  // ascending, disjoint, one special token each

  void plain(std::string_view piece) { text.append(piece); }

  void marker(std::string_view spelling) {
    markers.push_back({text.size(), text.size() + spelling.size()});
    text.append(spelling);
  }

  void append(const MarkedText& other) {
    for (const ByteRange& range : other.markers) {
      markers.push_back({text.size() + range.begin, text.size() + range.end});
    }
    text.append(other.text);
  }
};

}  // namespace fathom
