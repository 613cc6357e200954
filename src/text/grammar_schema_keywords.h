#pragma once

// The keywords of a JSON Schema as the grammars see them. Private to grammar_schema.

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "text/json_text.h"

namespace fathom {

// What a keyword speaks of.
enum class Subject : uint8_t {
  kAnnotation,
  kType,
  kObject,
  kArray,
  kString,
  kNumber,
  kWhole,  // the value as a whole: no other subject stands beside it
  kUnknown,
};
Subject subject_of(std::string_view keyword);

// "path: wanted ..., found ..."
Error refused(const std::string& path, const std::string& wanted, const std::string& found);

// Whether the value is of the type of that name.
bool has_type(const Json& value, std::string_view type);
// The same of what stands under the keyword `type`: a name or a list of names.
bool fits_type(const Json& value, const Json& type);

// The number under a keyword such as minItems, or `absent`.
Result<int64_t> count(const Json& schema, const char* keyword, int64_t absent,
                      const std::string& path);

// A value that is to be written as it stands holds no number that was rounded when it was read:
// kInvalid with the path of one that may have been, an integer that 64 bits do not hold.
Result<void> check_exact(const Json& value, const std::string& path);

}  // namespace fathom
