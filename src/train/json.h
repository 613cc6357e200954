#pragma once

// A small JSON reader for config.json, the data index and safetensors headers, so that the trainer
// builds on a machine that has nothing but CUDA and torch. Numbers keep their text: 64-bit integers
// are never routed through a double.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace fathom::train {

class Json {
 public:
  enum class Kind { kNull, kBool, kNumber, kString, kArray, kObject };

  // Parses one document; depth is limited to 64, anything after the value is an error.
  static Result<Json> parse(std::string_view text);

  Kind kind() const { return kind_; }
  bool is_object() const { return kind_ == Kind::kObject; }

  // Member of an object, or nullptr.
  const Json* find(const std::string& key) const;
  const std::map<std::string, Json>& members() const { return object_; }
  const std::vector<Json>& items() const { return array_; }

  const std::string& text() const { return text_; }  // of a string, or a number as written
  int64_t as_int(int64_t fallback = 0) const;
  double as_double(double fallback = 0) const;
  bool as_bool(bool fallback = false) const;

 private:
  friend class JsonParser;

  Kind kind_ = Kind::kNull;
  bool flag_ = false;
  std::string text_;
  std::vector<Json> array_;
  std::map<std::string, Json> object_;
};

// A JSON string literal with the quotes.
std::string json_quote(std::string_view text);

}  // namespace fathom::train
