#pragma once

// BodyFields: the members of one JSON object of a request, read one after another. The first
// refusal is kept and names its field by its whole place: "reasoning.effort: wanted ...".

#include <optional>
#include <string>

#include "base/result.h"
#include "text/json_text.h"

namespace fathom {

class BodyFields {
 public:
  // `where` is the object's own place, empty for the body. The object outlives the fields.
  explicit BodyFields(const Json& object, std::string where = {});
  explicit BodyFields(Json&& object, std::string where = {}) = delete;

  // Null if the member is absent or null.
  const Json* find(const char* name) const;
  const std::string& where() const { return where_; }
  std::string place(const std::string& name) const;

  // Absent members leave the value as it is.
  void text(const char* name, std::string& value);
  void flag(const char* name, bool& value);
  // Whether it was given.
  bool number(const char* name, double low, double high, double& value);
  std::optional<int64_t> integer(const char* name, int64_t low, int64_t high);

  // A member that must be there.
  std::string required_text(const char* name);
  // Null, and a refusal where it is there in another form.
  const JsonArray* array(const char* name);
  const Json* object(const char* name);

  void refuse(const std::string& name, const std::string& wanted, const std::string& found);
  void refuse(const std::string& name, const std::string& wanted, const Json* found);
  void keep(const Result<void>& inner);
  const std::optional<Error>& error() const { return error_; }
  Result<void> done() const { return error_ ? Result<void>(*error_) : Result<void>(); }

 private:
  const Json& object_;
  std::string where_;
  std::optional<Error> error_;
};

// A body that is one JSON object; kInvalid says what it is instead.
Result<Json> parse_body(std::string_view body);

}  // namespace fathom
