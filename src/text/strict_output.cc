#include "text/strict_output.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <optional>
#include <set>
#include <utility>

#include "text/json_text.h"
#include "text/markers.h"

namespace fathom {
namespace {

constexpr std::string_view kCallsOpen = "\n\n<｜DSML｜ calls";
constexpr std::string_view kCallsClose = "</｜DSML｜ calls>";
constexpr std::string_view kInvokeOpen = "<｜DSML｜ invoke";
constexpr std::string_view kInvokeClose = "</｜DSML｜ invoke";
constexpr std::string_view kParameterOpen = "<｜DSML｜ parameter";
constexpr std::string_view kParameterEnd = "/｜DSML｜ parameter";
constexpr std::string_view kTagEnd = ">\n";

class StrictReader {
 public:
  explicit StrictReader(std::string_view text) : text_(text) {}

  std::optional<StrictFault> read(bool thinking, StrictOutput* out) {
    if (thinking) {
      const Piece reasoning = until({kThinkCloseText, kCallsOpen});
      if (reasoning.stop != kThinkCloseText) return StrictFault::kMissingThinkEnd;
      out->reasoning = reasoning.text;
    }
    const Piece content = until({kEosText, kCallsOpen});
    if (content.stop.empty()) return StrictFault::kMissingEos;
    out->content = content.text;
    if (content.stop == kCallsOpen) {
      if (const auto fault = read_calls(out)) return fault;
      if (!until({kEosText}).text.empty()) return StrictFault::kTextAfterCalls;
    }
    if (at_ < text_.size()) return StrictFault::kTextAfterEnd;
    return special_spelling(*out);
  }

 private:
  struct Piece {
    std::string_view text;  // up to the stop, or to the end
    std::string_view stop;  // empty: none was found
  };

  // Goes to the end of the nearest of the stops.
  Piece until(std::initializer_list<std::string_view> stops) {
    Piece piece{text_.substr(at_), {}};
    for (const std::string_view stop : stops) {
      const size_t found = text_.find(stop, at_);
      if (found == std::string_view::npos || found - at_ >= piece.text.size()) continue;
      piece = {text_.substr(at_, found - at_), stop};
    }
    at_ += piece.text.size() + piece.stop.size();
    return piece;
  }

  std::optional<StrictFault> read_calls(StrictOutput* out) {
    while (at_ < text_.size()) {
      const Piece gap = until({kInvokeOpen, kCallsClose});
      if (gap.text != kTagEnd) return StrictFault::kCallFormat;
      if (gap.stop == kCallsClose) return std::nullopt;
      if (gap.stop.empty()) return StrictFault::kUnterminatedCalls;
      ParsedCall call;
      if (const auto fault = read_call(&call)) return fault;
      out->tool_calls.push_back(std::move(call));
    }
    return StrictFault::kUnterminatedCalls;
  }

  std::optional<StrictFault> read_call(ParsedCall* call) {
    constexpr std::string_view kNameOpen = "name=\"";
    constexpr std::string_view kNameEnd = "\">\n";
    Piece piece = until({kParameterOpen, kInvokeClose});
    std::string_view name = piece.text;
    name.remove_prefix(std::min(name.find_first_not_of(" \t\n\r\f\v"), name.size()));
    if (!name.starts_with(kNameOpen) || !name.ends_with(kNameEnd) ||
        name.size() < kNameOpen.size() + kNameEnd.size()) {
      return StrictFault::kNameFormat;
    }
    name.remove_prefix(kNameOpen.size());
    name.remove_suffix(kNameEnd.size());
    call->name = name;

    std::set<std::string> keys;
    std::string members;
    while (piece.stop == kParameterOpen) {
      if (const auto fault = read_parameter(&keys, &members)) return fault;
      piece = until({kParameterOpen, kInvokeClose});
      if (piece.text != kTagEnd) return StrictFault::kParameterFormat;
    }
    call->arguments = "{" + members + "}";
    return std::nullopt;
  }

  std::optional<StrictFault> read_parameter(std::set<std::string>* keys, std::string* members) {
    constexpr std::string_view kNameOpen = " name=\"";
    constexpr std::string_view kString = "\" string=\"true\">";
    constexpr std::string_view kRaw = "\" string=\"false\">";
    std::string_view body = until({kParameterEnd}).text;
    if (!body.starts_with(kNameOpen) || !body.ends_with('<')) return StrictFault::kParameterFormat;
    body.remove_prefix(kNameOpen.size());
    const size_t string_at = body.find(kString);
    const size_t raw_at = body.find(kRaw);
    const bool is_string = string_at < raw_at;
    const size_t key_end = std::min(string_at, raw_at);
    if (key_end == std::string_view::npos) return StrictFault::kParameterFormat;
    const size_t value_at = key_end + (is_string ? kString : kRaw).size();
    if (value_at >= body.size()) return StrictFault::kParameterFormat;
    const std::string key(body.substr(0, key_end));
    const std::string_view value = body.substr(value_at, body.size() - value_at - 1);
    if (!keys->insert(key).second) return StrictFault::kDuplicateParameter;
    *members += (members->empty() ? "" : ", ") + json_quoted(key) + ": ";
    *members += is_string ? json_quoted(value) : std::string(value);
    return std::nullopt;
  }

  static std::optional<StrictFault> special_spelling(const StrictOutput& out) {
    for (const std::string_view special :
         {kBosText, kEosText, kThinkOpenText, kThinkCloseText, kDsmlText}) {
      if (out.content.find(special) != std::string::npos ||
          out.reasoning.find(special) != std::string::npos) {
        return StrictFault::kSpecialTokenInText;
      }
    }
    return std::nullopt;
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

const char* strict_fault_name(StrictFault fault) {
  constexpr std::array kNames = {"missing_think_end",    "missing_eos",      "call_format",
                                 "unterminated_calls",   "name_format",      "parameter_format",
                                 "duplicate_parameter",  "text_after_calls", "text_after_end",
                                 "special_token_in_text"};
  return kNames[static_cast<size_t>(fault)];
}

std::variant<StrictOutput, StrictFault> parse_strict_output(std::string_view text, bool thinking) {
  StrictOutput output;
  if (const auto fault = StrictReader(text).read(thinking, &output)) return *fault;
  return output;
}

}  // namespace fathom
