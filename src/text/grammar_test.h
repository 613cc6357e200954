#pragma once

// For the tests of grammars: what a grammar takes, byte for byte.

#include <string>
#include <string_view>

#include "text/grammar_machine.h"
#include "text/json_text.h"

namespace fathom {

enum class Taken { kNo, kBegun, kWhole };  // no text of the grammar begins so; some do; it is one

inline Taken taken(const Grammar& grammar, std::string_view text) {
  GrammarMachine machine(grammar);
  GrammarMachine::Position at = machine.start();
  for (const char c : text) at = machine.next(at, grammar.symbol_class[static_cast<uint8_t>(c)]);
  if (machine.complete(at)) return Taken::kWhole;
  return at == GrammarMachine::kDead ? Taken::kNo : Taken::kBegun;
}

inline bool takes(const Grammar& grammar, std::string_view text) {
  return taken(grammar, text) == Taken::kWhole;
}

}  // namespace fathom
