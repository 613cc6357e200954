#include "script.h"

#include <algorithm>
#include <boost/json.hpp>
#include <cstdio>

#include "text/markers.h"
#include "text/quote.h"

namespace fathom {
namespace {

namespace json = boost::json;

constexpr std::string_view kLetters =
    "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxy";
constexpr int64_t kPeriod = 61;  // a prime, so that every stride visits every letter
static_assert(static_cast<int64_t>(kLetters.size()) == kPeriod);

Result<std::vector<std::string>> texts(const json::value& value, const std::string& where) {
  std::vector<std::string> found;
  if (value.is_string()) return std::vector<std::string>{std::string(value.get_string())};
  if (!value.is_array()) return invalid(where + ": wanted a text or an array of texts");
  for (const json::value& item : value.get_array()) {
    if (!item.is_string()) return invalid(where + ": wanted texts");
    found.emplace_back(item.get_string());
  }
  return found;
}

Result<ScriptRule> rule_of(const json::value& value, const std::string& where) {
  if (!value.is_object()) return invalid(where + ": wanted an object");
  ScriptRule rule;
  for (const auto& [key, member] : value.get_object()) {
    const std::string name(key);
    const std::string place = where + "." + name;
    if (name == "when" || name == "unless" || name == "prompt") {
      FATHOM_ASSIGN_OR_RETURN(auto found, texts(member, place));
      (name == "when"     ? rule.when
       : name == "unless" ? rule.unless
                          : rule.prompt) = std::move(found);
    } else if ((name == "thinking" || name == "answer") && member.is_string()) {
      (name == "thinking" ? rule.thinking : rule.answer) = std::string(member.get_string());
    } else if (name == "letters" && member.is_bool()) {
      rule.letters = member.get_bool();
    } else {
      return invalid(place + ": wanted a member of a rule with its type");
    }
  }
  return rule;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

bool fits(const ScriptRule& rule, const std::string& turn, const std::string& prompt) {
  return std::ranges::all_of(rule.when, [&](const auto& part) { return has(turn, part); }) &&
         std::ranges::none_of(rule.unless, [&](const auto& part) { return has(turn, part); }) &&
         std::ranges::all_of(rule.prompt, [&](const auto& part) { return has(prompt, part); });
}

Result<ScriptedAnswer> letters_for(const std::string& turn) {
  long stream = -1;
  long n = -1;
  const size_t at = turn.find("stream ");
  if (at == std::string::npos ||
      std::sscanf(turn.c_str() + at, "stream %ld letters %ld", &stream, &n) != 2 || stream < 0 ||
      n < 0) {
    return invalid("script: letters: wanted `stream N letters M` in the last turn");
  }
  ScriptedAnswer answer = {.stream = stream};
  for (int64_t k = 0; k < n; ++k) answer.text += stream_letter(stream, k);
  return answer;
}

}  // namespace

char stream_letter(int64_t stream, int64_t k) {
  const int64_t stride = 1 + stream / kPeriod % (kPeriod - 1);
  return kLetters[static_cast<size_t>((stream + k * stride) % kPeriod)];
}

Result<Script> Script::parse(std::string_view text) {
  boost::system::error_code code;
  const json::value parsed = json::parse({text.data(), text.size()}, code);
  if (code) return invalid("script: wanted JSON, found: " + code.message());
  if (!parsed.is_array()) return invalid("script: wanted an array of rules");
  std::vector<ScriptRule> rules;
  for (const json::value& value : parsed.get_array()) {
    const std::string where = "script: rule " + std::to_string(rules.size());
    FATHOM_ASSIGN_OR_RETURN(ScriptRule rule, rule_of(value, where));
    rules.push_back(std::move(rule));
  }
  return Script(std::move(rules));
}

Result<ScriptedAnswer> Script::answer(const std::string& prompt) const {
  const size_t at = prompt.rfind(kUserText);
  const std::string turn = at == std::string::npos ? prompt : prompt.substr(at);
  const bool thinks = prompt.ends_with(kThinkOpenText);
  for (const ScriptRule& rule : rules_) {
    if (!fits(rule, turn, prompt)) continue;
    ScriptedAnswer answer = {.text = rule.answer};
    if (rule.letters) {
      FATHOM_ASSIGN_OR_RETURN(answer, letters_for(turn));
    }
    if (thinks) answer.text = rule.thinking + std::string(kThinkCloseText) + answer.text;
    return answer;
  }
  const size_t n_shown = std::min<size_t>(turn.size(), 60);
  return not_found("script: wanted a rule for the last turn, found none for its end " +
                   quote(turn.substr(turn.size() - n_shown)));
}

}  // namespace fathom
