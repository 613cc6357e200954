#include "serve/body_fields.h"

#include "text/quote.h"

namespace fathom {
namespace {

std::optional<double> as_number(const Json& value) {
  if (const int64_t* is = value.as_int64()) return static_cast<double>(*is);
  if (const uint64_t* is = value.as_uint64()) return static_cast<double>(*is);
  if (const double* is = value.as_double()) return *is;
  return std::nullopt;
}

std::string shown(double value) {
  const std::optional<int64_t> whole = whole_number(value);
  return whole ? std::to_string(*whole) : json_double(value);
}

}  // namespace

BodyFields::BodyFields(const Json& object, std::string where)
    : object_(object), where_(std::move(where)) {
  if (object.as_object() == nullptr) {
    error_ = invalid((where_.empty() ? "body" : where_) + ": wanted an object, found " +
                     object.kind_name());
  }
}

const Json* BodyFields::find(const char* name) const {
  const Json* found = object_.find(name);
  return found == nullptr || found->is_null() ? nullptr : found;
}

std::string BodyFields::place(const std::string& name) const {
  return where_.empty() ? name : where_ + "." + name;
}

void BodyFields::text(const char* name, std::string& value) {
  const Json* found = find(name);
  if (found == nullptr) return;
  const std::string* is = found->as_string();
  if (is == nullptr) return refuse(name, "a string", found->kind_name());
  value = *is;
}

void BodyFields::flag(const char* name, bool& value) {
  const Json* found = find(name);
  if (found == nullptr) return;
  const bool* is = found->as_bool();
  if (is == nullptr) return refuse(name, "true or false", found->kind_name());
  value = *is;
}

bool BodyFields::number(const char* name, double low, double high, double& value) {
  const Json* found = find(name);
  if (found == nullptr) return false;
  const std::string wanted = "a number from " + shown(low) + " to " + shown(high);
  const std::optional<double> is = as_number(*found);
  if (!is) return refuse(name, wanted, found->kind_name()), false;
  if (!(*is >= low && *is <= high)) return refuse(name, wanted, shown(*is)), false;
  value = *is;
  return true;
}

std::optional<int64_t> BodyFields::integer(const char* name, int64_t low, int64_t high) {
  const Json* found = find(name);
  if (found == nullptr) return std::nullopt;
  const std::string wanted =
      "an integer from " + std::to_string(low) + " to " + std::to_string(high);
  const int64_t* is = found->as_int64();
  if (is == nullptr) {
    const bool large = found->as_uint64() != nullptr || found->as_double() != nullptr;
    return refuse(name, wanted, large ? json_text(*found) : found->kind_name()), std::nullopt;
  }
  if (*is < low || *is > high) return refuse(name, wanted, std::to_string(*is)), std::nullopt;
  return *is;
}

std::string BodyFields::required_text(const char* name) {
  const Json* found = find(name);
  if (found != nullptr && found->as_string() != nullptr) return *found->as_string();
  refuse(name, "a string", found);
  return {};
}

const JsonArray* BodyFields::array(const char* name) {
  const Json* found = find(name);
  if (found == nullptr) return nullptr;
  if (found->as_array() == nullptr) refuse(name, "an array", found->kind_name());
  return found->as_array();
}

const Json* BodyFields::object(const char* name) {
  const Json* found = find(name);
  if (found == nullptr || found->as_object() != nullptr) return found;
  refuse(name, "an object", found->kind_name());
  return nullptr;
}

void BodyFields::refuse(const std::string& name, const std::string& wanted,
                        const std::string& found) {
  if (!error_) error_ = invalid(place(name) + ": wanted " + wanted + ", found " + found);
}

void BodyFields::refuse(const std::string& name, const std::string& wanted, const Json* found) {
  std::string seen = "nothing";
  if (found != nullptr) {
    seen = found->as_string() != nullptr ? quote(*found->as_string()) : found->kind_name();
  }
  refuse(name, wanted, seen);
}

void BodyFields::keep(const Result<void>& inner) {
  if (!inner && !error_) error_ = inner.error();
}

Result<Json> parse_body(std::string_view body) {
  Result<Json> parsed = parse_json(body);
  if (!parsed) return invalid("body: " + parsed.error().message);
  FATHOM_RETURN_IF_ERROR(BodyFields(*parsed).done());
  return parsed;
}

}  // namespace fathom
