#include "serve/chat_call.h"

#include <algorithm>

#include "text/json_text.h"

namespace fathom {
namespace {

constexpr int64_t kDefaultPlain = 8192;
constexpr int64_t kDefaultThinking = 65'536;
constexpr int64_t kDefaultMaxEffort = 131'072;
constexpr double kTopPMin = 0.95;

// One member of the body after another; keeps the first refusal.
class Fields {
 public:
  explicit Fields(const Json& body) : body_(body) {}

  void text(const char* name, std::string& value) {
    const Json* found = find(name);
    if (found == nullptr) return;
    const std::string* is = found->as_string();
    if (is == nullptr) return refuse(name, "a string", found->kind_name());
    value = *is;
  }

  void flag(const char* name, bool& value) {
    const Json* found = find(name);
    if (found == nullptr) return;
    const bool* is = found->as_bool();
    if (is == nullptr) return refuse(name, "true or false", found->kind_name());
    value = *is;
  }

  // Whether it was given.
  bool number(const char* name, double low, double high, double& value) {
    const Json* found = find(name);
    if (found == nullptr) return false;
    const std::string wanted = "a number from " + shown(low) + " to " + shown(high);
    const std::optional<double> is = as_number(*found);
    if (!is) return refuse(name, wanted, found->kind_name()), false;
    if (!(*is >= low && *is <= high)) return refuse(name, wanted, shown(*is)), false;
    value = *is;
    return true;
  }

  std::optional<int64_t> integer(const char* name, int64_t low, int64_t high) {
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

  void refuse(const std::string& name, const std::string& wanted, const std::string& found) {
    if (!error_) error_ = invalid(name + ": wanted " + wanted + ", found " + found);
  }

  const Json* find(const char* name) const {
    const Json* found = body_.find(name);
    return found == nullptr || found->is_null() ? nullptr : found;
  }

  Result<void> done() const { return error_ ? Result<void>(*error_) : Result<void>(); }

 private:
  static std::optional<double> as_number(const Json& value) {
    if (const int64_t* is = value.as_int64()) return static_cast<double>(*is);
    if (const uint64_t* is = value.as_uint64()) return static_cast<double>(*is);
    if (const double* is = value.as_double()) return *is;
    return std::nullopt;
  }
  static std::string shown(double value) {
    const auto whole = static_cast<int64_t>(value);
    return static_cast<double>(whole) == value ? std::to_string(whole) : json_double(value);
  }

  const Json& body_;
  std::optional<Error> error_;
};

void read_sampling(Fields& fields, ChatCall& call) {
  SamplingOptions& sampling = call.sampling;
  fields.number("temperature", 0, 2, sampling.temperature);
  fields.number("top_p", 0, 1, sampling.top_p);
  fields.number("presence_penalty", -2, 2, sampling.presence_penalty);
  fields.number("frequency_penalty", -2, 2, sampling.frequency_penalty);
  if (const auto seed = fields.integer("seed", INT64_MIN, INT64_MAX)) {
    sampling.seed = static_cast<uint64_t>(*seed);
    call.seeded = true;
  }
  if (!call.request.thinking) {
    sampling.top_p = 1;
    return;
  }
  sampling.temperature = 1;
  sampling.presence_penalty = sampling.frequency_penalty = 0;
  sampling.top_p = std::max(sampling.top_p, kTopPMin);
}

void read_restore(Fields& fields, ChatCall& call) {
  std::string grade;
  fields.text("restore", grade);
  if (grade.empty()) return;
  if (grade != "exact" && grade != "bounded") {
    return fields.refuse("restore", "exact or bounded", json_quoted(grade));
  }
  call.restore = grade == "exact" ? RestoreGrade::kExact : RestoreGrade::kBounded;
}

}  // namespace

Result<ChatCall> parse_chat_call(std::string_view body) {
  Result<Json> parsed = parse_json(body);
  if (!parsed) return invalid("body: " + parsed.error().message);
  if (parsed->as_object() == nullptr) {
    return invalid(std::string("body: wanted an object, found ") + parsed->kind_name());
  }
  ChatCall call;
  FATHOM_ASSIGN_OR_RETURN(call.request, parse_chat_request(*parsed));
  Fields fields(*parsed);
  fields.text("model", call.model);
  fields.flag("stream", call.stream);
  if (const Json* options = fields.find("stream_options")) {
    Fields inner(*options);
    if (options->as_object() == nullptr) {
      fields.refuse("stream_options", "an object", options->kind_name());
    }
    inner.flag("include_usage", call.include_usage);
    FATHOM_RETURN_IF_ERROR(inner.done());
  }
  call.max_tokens = fields.integer("max_tokens", 1, kMaxTokensMax);
  fields.integer("n", 1, 1);
  read_sampling(fields, call);
  fields.flag("logprobs", call.logprobs);
  call.top_logprobs = fields.integer("top_logprobs", 0, 20).value_or(0);
  read_restore(fields, call);
  FATHOM_RETURN_IF_ERROR(fields.done());
  return call;
}

Result<int64_t> answer_tokens(const ChatCall& call, int64_t prompt_tokens, int64_t context) {
  const int64_t left = context - prompt_tokens;
  if (left < 1) {
    return invalid("messages: wanted a prompt of at most " + std::to_string(context - 1) +
                   " tokens, found " + std::to_string(prompt_tokens));
  }
  if (call.max_tokens) {
    if (*call.max_tokens <= left) return *call.max_tokens;
    return invalid("max_tokens: wanted at most " + std::to_string(left) + " beside a prompt of " +
                   std::to_string(prompt_tokens) + " tokens in a context of " +
                   std::to_string(context) + ", found " + std::to_string(*call.max_tokens));
  }
  const bool most = call.request.effort >= kEffortMax;
  const int64_t usual = !call.request.thinking ? kDefaultPlain
                        : most                 ? kDefaultMaxEffort
                                               : kDefaultThinking;
  return std::min(usual, left);
}

}  // namespace fathom
