// Any bytes as a form and as a text of it. The first byte chooses the kind of form and the frame,
// the form goes on to the first zero byte, the rest is the text. A form is compiled or refused in
// one line; every position that a text reaches can be written and read again, goes on by some byte
// or is an end, and a mask agrees with the moves of single bytes.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "text/grammar_form.h"
#include "text/grammar_regex.h"
#include "text/grammar_schema.h"
#include "text/grammar_tools.h"
#include "text/token_matcher.h"

namespace fathom {
namespace {

constexpr size_t kFormMax = 4096;
constexpr size_t kTextMax = 256;

const TokenTrie& tokens() {
  static const TokenTrie kTrie = [] {
    std::vector<std::string> pieces;
    for (int byte = 0; byte < 256; ++byte) pieces.emplace_back(1, static_cast<char>(byte));
    for (const char* piece :
         {"\":", "{\"", "\"}", "}}", "[[", "true", "00", "\n  ", "\\u00", "ab"}) {
      pieces.emplace_back(piece);
    }
    return TokenTrie(pieces, std::vector<bool>(pieces.size()));
  }();
  return kTrie;
}

Result<Grammar> compile(uint8_t choice, std::string_view form) {
  const GrammarFrame frame = {.thinking = (choice & 4) != 0, .calls = (choice & 8) != 0};
  switch (choice % 4) {
    case 0:
      return regex_grammar(form, "form", frame);
    case 1:
      return form_grammar(form, "form", frame);
    default: {
      const Result<Json> schema = parse_json(form);
      if (!schema) return schema.error();
      if (choice % 4 == 2) return schema_grammar(*schema, "form", frame);
      const ToolDefinition tool = {
          .name = "f", .strict = true, .schema = *schema, .schema_path = "form"};
      const ToolDefinition* tools[] = {&tool};
      return tools_grammar(tools, static_cast<BeforeCalls>(choice / 4 % 4));
    }
  }
}

void check_mask(TokenMatcher& matcher, const GrammarState& state) {
  const auto mask = matcher.mask(state);
  if (!mask) return;
  bool goes_on = false;
  const TokenMask allowed = **mask;
  for (TokenId byte = 0; byte < 256; byte += 7) {
    GrammarState next = state;
    const auto taken = matcher.accept(next, byte);
    if (!taken) return;
    FATHOM_CHECK(*taken == mask_has(allowed, byte));
  }
  for (const uint64_t word : allowed) goes_on = goes_on || word != 0;
  FATHOM_CHECK(goes_on == state.can_go_on);
}

void check_form(uint8_t choice, std::string_view form, std::string_view text) {
  const Result<Grammar> grammar = compile(choice, form);
  if (!grammar) {
    FATHOM_CHECK(!grammar.error().message.empty());
    FATHOM_CHECK(grammar.error().message.find('\n') == std::string::npos);
    return;
  }
  TokenMatcher matcher(*grammar, tokens(), {.n_positions = 4096});
  Result<GrammarState> state = matcher.start();
  if (!state) return;
  for (const char c : text) {
    const auto taken = matcher.accept(*state, static_cast<uint8_t>(c));
    if (!taken || !*taken) break;
    FATHOM_CHECK(state->can_end || state->can_go_on);
  }
  check_mask(matcher, *state);
}

}  // namespace
}  // namespace fathom

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::string_view form = bytes.substr(0, bytes.find('\0')).substr(0, fathom::kFormMax);
  std::string_view text = bytes.substr(form.size());
  if (!text.empty()) text.remove_prefix(1);
  fathom::check_form(data[0], form, text.substr(0, fathom::kTextMax));
  return 0;
}
