// Any bytes as an encoding.py and as a tools_template.txt: an error of one line, or two texts whose
// markers lie inside them.

#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "text/tools_template.h"

namespace {

void check_half(const fathom::MarkedText& half) {
  size_t end = 0;
  for (const fathom::ByteRange& marker : half.markers) {
    FATHOM_CHECK(marker.begin >= end);
    FATHOM_CHECK(marker.end > marker.begin);
    end = marker.end;
  }
  FATHOM_CHECK(end <= half.text.size());
}

void check(const fathom::Result<fathom::ToolsTemplate>& parsed) {
  if (!parsed) {
    FATHOM_CHECK(parsed.error().message.find('\n') == std::string::npos);
    return;
  }
  check_half(parsed->head);
  check_half(parsed->tail);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input{reinterpret_cast<const char*>(data), size};
  check(fathom::parse_tools_template(input));
  check(fathom::parse_encoding_source(input));
  return 0;
}
