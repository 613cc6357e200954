// Any bytes as generated text, under every setting. The first byte chooses the settings, the second
// seeds the cuts; the rest is the text. However it is cut the result is the same, no call appears
// where calls are not looked for, and the strict grammar is total too.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "text/output_parser.h"
#include "text/strict_output.h"

namespace fathom {
namespace {

OutputSettings settings_from(uint8_t choice) {
  OutputSettings settings;
  settings.start = static_cast<OutputStart>(choice % 5);
  settings.tools = (choice / 5) % 2 == 0;
  settings.json_mode = (choice / 10) % 2 == 1;
  if ((choice / 20) % 2 == 1) settings.stop = {"STOP", "\n\n<"};
  return settings;
}

bool same(const ParsedOutput& a, const ParsedOutput& b) {
  if (a.reasoning != b.reasoning || a.content != b.content) return false;
  if (a.finish_reason != b.finish_reason) return false;
  if (a.tool_calls.size() != b.tool_calls.size()) return false;
  for (size_t i = 0; i < a.tool_calls.size(); ++i) {
    if (a.tool_calls[i].name != b.tool_calls[i].name) return false;
    if (a.tool_calls[i].arguments != b.tool_calls[i].arguments) return false;
  }
  return true;
}

ParsedOutput parse_cut(std::string_view text, const OutputSettings& settings, uint32_t seed) {
  ParsedOutput output = parse_output("", settings);
  OutputParser parser(settings);
  while (!text.empty()) {
    seed = seed * 1664525 + 1013904223;
    const size_t n = 1 + (seed >> 24) % 7;
    accumulate(&output, parser.feed(text.substr(0, n)));
    text.remove_prefix(n < text.size() ? n : text.size());
  }
  accumulate(&output, parser.finish());
  output.finish_reason = parser.finish_reason(FinishReason::kStop);
  return output;
}

void check_text(std::string_view text, uint8_t choice, uint8_t seed) {
  const OutputSettings settings = settings_from(choice);
  const ParsedOutput whole = parse_output(text, settings);
  FATHOM_CHECK(same(parse_cut(text, settings, seed), whole));
  FATHOM_CHECK(settings.tools || settings.start == OutputStart::kCalls || whole.tool_calls.empty());
  static_cast<void>(parse_strict_output(text, choice % 2 == 0));
}

}  // namespace
}  // namespace fathom

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  fathom::check_text({reinterpret_cast<const char*>(data) + 2, size - 2}, data[0], data[1]);
  return 0;
}
