#pragma once

// Characters as expressions write them: as they stand, as escapes, as classes in brackets
// (grammar_regex.h lists them). Private to grammar_regex.

#include "base/result.h"
#include "text/character_set.h"
#include "text/grammar_pattern.h"

namespace fathom {

// A class in brackets; the text stands at the opening one.
Result<CharacterSet> read_class(PatternText& text);

// One character, or the set that an escape stands for.
Result<CharacterSet> read_character(PatternText& text);

}  // namespace fathom
