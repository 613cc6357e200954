#pragma once

// JSON as the chat format needs it (spec/chat.md 3): key order is kept, a repeated key keeps its
// first place and its last value, and numbers are written again in one canonical form.
//
// Reading is strict: RFC 8259, well-formed UTF-8, no lone surrogates, no number beyond a double.
// A literal without fraction and exponent is an integer if it fits 64 bits, signed or unsigned
// ("-0" is the double -0.0); everything else is a double, rounded to nearest.
//
// Thread rule: values; no shared state.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"

namespace fathom {

class Json;
struct JsonMember;
using JsonArray = std::vector<Json>;
using JsonObject = std::vector<JsonMember>;

class Json {
 public:
  Json();  // null
  explicit Json(bool value);
  explicit Json(int64_t value);
  explicit Json(uint64_t value);
  explicit Json(double value);  // finite
  explicit Json(std::string value);
  explicit Json(JsonArray value);
  explicit Json(JsonObject value);
  Json(const Json& other);
  Json(Json&& other) noexcept;
  Json& operator=(const Json& other);
  Json& operator=(Json&& other) noexcept;
  ~Json();

  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  bool is_number() const { return as_int64() || as_uint64() || as_double(); }

  // The value if it has this type, otherwise null. An integer above INT64_MAX is a uint64_t, every
  // other one an int64_t.
  const bool* as_bool() const { return std::get_if<bool>(&value_); }
  const int64_t* as_int64() const { return std::get_if<int64_t>(&value_); }
  const uint64_t* as_uint64() const { return std::get_if<uint64_t>(&value_); }
  const double* as_double() const { return std::get_if<double>(&value_); }
  const std::string* as_string() const { return std::get_if<std::string>(&value_); }
  const JsonArray* as_array() const { return std::get_if<JsonArray>(&value_); }
  const JsonObject* as_object() const { return std::get_if<JsonObject>(&value_); }

  // The member of this object with that key; null if it is absent or this is no object.
  const Json* find(std::string_view key) const;

  // "null", "a boolean", "a number", "a string", "an array", "an object": for messages.
  const char* kind_name() const;

 private:
  std::variant<std::monostate, bool, int64_t, uint64_t, double, std::string, JsonArray, JsonObject>
      value_;
};

struct JsonMember {
  std::string key;
  Json value;
};

// Only here, because a vector of an incomplete JsonMember can be declared but not destroyed.
inline Json::Json() = default;
inline Json::Json(bool value) : value_(value) {}
inline Json::Json(int64_t value) : value_(value) {}
inline Json::Json(uint64_t value) : value_(value) {}
inline Json::Json(double value) : value_(value) {}
inline Json::Json(std::string value) : value_(std::move(value)) {}
inline Json::Json(JsonArray value) : value_(std::move(value)) {}
inline Json::Json(JsonObject value) : value_(std::move(value)) {}
inline Json::Json(const Json& other) = default;
inline Json::Json(Json&& other) noexcept = default;
inline Json& Json::operator=(const Json& other) = default;
inline Json& Json::operator=(Json&& other) noexcept = default;
inline Json::~Json() = default;

struct JsonLimits {
  size_t bytes_max = size_t{64} << 20;
  int depth_max = 127;        // arrays and objects around a value; the library refuses the 128th
  bool repeated_keys = true;  // false: an object that has a key twice is refused
};

// The whole of `text` is one JSON value, white space around it allowed. Errors give the byte.
Result<Json> parse_json(std::string_view text, const JsonLimits& limits = {});

// One line: separators ", " and ": ", non-ASCII characters and U+007F raw, no final newline.
std::string json_text(const Json& value);

// A double as Python prints it: shortest digits that read back the same, always with ".0" or an
// exponent; exponent form from 1e16 up and below 1e-4, its sign always written, two digits at
// least.
std::string json_double(double value);

// The value as an integer where it is a whole number that a double holds exactly.
std::optional<int64_t> whole_number(double value);

// The escaped form of `text` inside a JSON string, without the quotes. Works on any bytes and is
// the concatenation of the escaped forms of any pieces.
void append_json_escaped(std::string* out, std::string_view text);

// The same with the quotes.
std::string json_quoted(std::string_view text);

}  // namespace fathom
