#pragma once

// JSON Schemas that a request brings along: checked, and for strict tools normalised.

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "text/json_text.h"

namespace fathom {

// The value that a pointer such as "/properties/a~1b" (RFC 6901, percent-encoding allowed) names
// below `root`, or null.
const Json* resolve_pointer(const Json& root, std::string_view pointer);

// The value of a number.
std::optional<double> number_of(const Json& value);

// Checks that `schema` is a JSON Schema: an object or a boolean whose keywords have the types of
// draft 2020-12 (the schema keywords recursively) and whose local references ("#/...") point to
// something. `where` names the field in messages. Unknown keywords are allowed.
Result<void> check_schema(const Json& schema, const std::string& where);
// The same of a part of `root`, which references lead into.
Result<void> check_schema(const Json& schema, const std::string& where, const Json& root);

// The same, and the type of the whole must be exactly "object", as the parameters of a tool need.
Result<void> check_parameters_schema(const Json& schema, const std::string& where);

// The form in which a strict tool's parameters are written (spec/chat.md 3): every object gets
// `additionalProperties` false and `required` with all its properties in their order; only these
// keywords stay, in this order:
//   object   type, properties, additionalProperties, required, description, $def
//   string   type, description, pattern, format (email, hostname, ipv4, ipv6, uuid), enum
//   number   type, description, const, default, minimum, maximum, exclusiveMinimum,
//            exclusiveMaximum, multipleOf; integer the same, and every value an int64
//   array    type, items, description
//   boolean, null, list of scalar types: type, description
//   anyOf, description    without type; each branch has one type
//   $ref                  without type and anyOf
// Refused: a property without any of type, anyOf and $ref; an open object; `required` that does not
// list every property; an inner object without properties; a whole that is not an object.
// `parameters` null stands for an object without properties.
Result<Json> normalise_strict_schema(const Json& parameters, const std::string& where);

}  // namespace fathom
