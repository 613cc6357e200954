#pragma once

// JSON Schemas as grammars (docs/design/grammar.md lists the keywords). Every text of the grammar
// is a JSON document that the schema allows; not every document that it allows is a text of it:
//
//   properties stand in the order of `properties`; others follow them where additionalProperties
//   is true or a schema, or where no properties are listed, and their keys have no escapes;
//   where `type` is absent, the types that the other keywords speak of; without any, all JSON of at
//   most kJsonDepth levels;
//   between parts at most one space, or a line feed and up to 40 spaces and tabs;
//   numbers as grammar_number.h bounds them; strings under pattern, format, enum and const are
//   written in one way (only what must be escaped is); format values are a subset where a standard
//   allows odd forms;
//   a oneOf is taken where its branches provably exclude each other (schema_exclusion.h).
//
// A keyword that is not enforced, and one whose value or combination is not, is refused: kInvalid,
// the path of the keyword first.

#include <string>

#include "base/result.h"
#include "text/grammar.h"
#include "text/json_text.h"

namespace fathom {

inline constexpr int kJsonDepth = 24;

// `where` is the path of the schema itself.
Result<Grammar> schema_grammar(const Json& schema, const std::string& where,
                               const GrammarFrame& frame = {});

// Any JSON object.
Result<Grammar> object_grammar(const GrammarFrame& frame = {});

}  // namespace fathom
