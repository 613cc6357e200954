#pragma once

// Result<T>: an expected failure as a value. Members are named as in std::expected, which not all
// of our compilers have, so that it can become an alias one day.
//
//   Result<Config> load(const std::string& path);
//   FATHOM_ASSIGN_OR_RETURN(auto config, load(path));
//
// A message is one line: what, where, wanted, found, for example
//   "shard 3: tensor layers.14.attn.wkv.weight has shape [512, 4096], expected [512, 5120]".

#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "base/check.h"

namespace fathom {

enum class ErrorCode {
  kInvalid,    // the input is wrong: a file, a flag, a request
  kNotFound,   // a named thing is not there
  kExhausted,  // a configured limit or the memory is not enough
  kIo,         // the operating system refused
  kCancelled,  // the caller asked to stop
};

struct Error {
  ErrorCode code = ErrorCode::kInvalid;
  std::string message;
};

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT: implicit
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT: implicit

  bool has_value() const { return state_.index() == 0; }
  explicit operator bool() const { return has_value(); }

  T& value() & { return FATHOM_CHECK(has_value()), std::get<0>(state_); }
  const T& value() const& { return FATHOM_CHECK(has_value()), std::get<0>(state_); }
  T&& value() && { return FATHOM_CHECK(has_value()), std::get<0>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const Error& error() const { return FATHOM_CHECK(!has_value()), std::get<1>(state_); }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT: implicit

  bool has_value() const { return !error_.has_value(); }
  explicit operator bool() const { return has_value(); }
  const Error& error() const { return FATHOM_CHECK(error_.has_value()), *error_; }

 private:
  std::optional<Error> error_;
};

inline Error invalid(std::string message) { return {ErrorCode::kInvalid, std::move(message)}; }
inline Error not_found(std::string message) { return {ErrorCode::kNotFound, std::move(message)}; }
inline Error exhausted(std::string message) { return {ErrorCode::kExhausted, std::move(message)}; }
inline Error io_error(std::string message) { return {ErrorCode::kIo, std::move(message)}; }

}  // namespace fathom

#define FATHOM_RETURN_IF_ERROR(expr)                     \
  do {                                                   \
    if (auto&& fathom_result = (expr); !fathom_result) { \
      return fathom_result.error();                      \
    }                                                    \
  } while (false)

#define FATHOM_CONCAT_INNER(a, b) a##b
#define FATHOM_CONCAT(a, b) FATHOM_CONCAT_INNER(a, b)
#define FATHOM_ASSIGN_OR_RETURN_AS(name, declaration, expr) \
  auto name = (expr);                                       \
  if (!name) {                                              \
    return name.error();                                    \
  }                                                         \
  declaration = std::move(*name)
#define FATHOM_ASSIGN_OR_RETURN(declaration, expr) \
  FATHOM_ASSIGN_OR_RETURN_AS(FATHOM_CONCAT(fathom_result_, __LINE__), declaration, expr)
