#pragma once

// CustomInput: the arguments of a custom tool, {"input": "..."}, turned back into the plain text
// of `input` while they come. Arguments of another form are passed on as the JSON text they are.

#include <string>
#include <string_view>

namespace fathom {

class CustomInput {
 public:
  // What the next piece of the arguments adds to the input.
  std::string push(std::string_view piece);
  // What was held back, once nothing more comes.
  std::string flush();

 private:
  enum class State : uint8_t { kStart, kText, kEnded, kRaw };

  std::string unescape();

  State state_ = State::kStart;
  std::string held_;  // an unfinished beginning or escape
};

}  // namespace fathom
