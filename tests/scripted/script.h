#pragma once

// Script: what a scripted model says to which prompt. For protocol tests.
//
// A file is a JSON array of rules; the first that fits answers:
//   when      texts that the last user turn (tool results are one) must hold; none: fits always
//   unless    texts that it must not hold
//   prompt    texts that the prompt must hold anywhere
//   thinking  what comes before </think> where the prompt asks for thinking
//   answer    what follows, in the model's own syntax (spec/chat.md section 3)
//   letters   true instead of an answer: the last turn says `stream N letters M`, and the answer
//             are the first M of the letters of stream N (stream_letter)

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace fathom {

struct ScriptRule {
  std::vector<std::string> when;
  std::vector<std::string> unless;
  std::vector<std::string> prompt;
  std::string thinking;
  std::string answer;
  bool letters = false;
};

struct ScriptedAnswer {
  std::string text;
  int64_t stream = -1;  // a stream of letters, one token each
};

// A sequence of letters and digits that is each stream's own, so that a letter that is lost, comes
// twice or goes to somebody else shows in the text.
char stream_letter(int64_t stream, int64_t k);

class Script {
 public:
  // kInvalid names the rule and the member.
  static Result<Script> parse(std::string_view json);

  explicit Script(std::vector<ScriptRule> rules) : rules_(std::move(rules)) {}

  // To a rendered prompt. kNotFound, with the end of the last turn, where no rule fits.
  Result<ScriptedAnswer> answer(const std::string& prompt) const;

 private:
  std::vector<ScriptRule> rules_;
};

}  // namespace fathom
