#pragma once

// Members of the small JSON objects that the trainer reads; one that is absent or of another type
// is the value of nothing.

#include <cstdint>
#include <string>

#include "text/json_text.h"

namespace fathom::train {

inline std::string text_field(const Json& object, const char* key) {
  const Json* field = object.find(key);
  const std::string* text = field == nullptr ? nullptr : field->as_string();
  return text == nullptr ? "" : *text;
}

inline int64_t int_field(const Json& object, const char* key) {
  const Json* field = object.find(key);
  const int64_t* value = field == nullptr ? nullptr : field->as_int64();
  return value == nullptr ? 0 : *value;
}

inline double real_field(const Json& object, const char* key) {
  const Json* field = object.find(key);
  const double* value = field == nullptr ? nullptr : field->as_double();
  return value == nullptr ? static_cast<double>(int_field(object, key)) : *value;
}

}  // namespace fathom::train
