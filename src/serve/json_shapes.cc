#include "serve/json_shapes.h"

#include <cstdio>

#include "text/utf8.h"

namespace fathom {
namespace {

namespace json = boost::json;

json::object token_json(const std::string& bytes, float logprob) {
  json::array values;
  for (const char byte : bytes) values.push_back(static_cast<unsigned char>(byte));
  return {{"token", token_text(bytes)}, {"logprob", logprob}, {"bytes", std::move(values)}};
}

}  // namespace

json::value boost_json(const Json& value) {
  if (const bool* is = value.as_bool()) return *is;
  if (const int64_t* is = value.as_int64()) return *is;
  if (const uint64_t* is = value.as_uint64()) return *is;
  if (const double* is = value.as_double()) return *is;
  if (const std::string* is = value.as_string()) return json::value(*is);
  if (const JsonArray* items = value.as_array()) {
    json::array out;
    for (const Json& item : *items) out.push_back(boost_json(item));
    return out;
  }
  if (const JsonObject* members = value.as_object()) {
    json::object out;
    for (const JsonMember& member : *members) out[member.key] = boost_json(member.value);
    return out;
  }
  return nullptr;
}

std::string token_text(std::string_view bytes) {
  if (utf8_valid_prefix(bytes) == bytes.size()) return std::string(bytes);
  std::string text;
  for (const char byte : bytes) {
    char shown[5];
    std::snprintf(shown, sizeof(shown), "\\x%02x", static_cast<unsigned char>(byte));
    text += shown;
  }
  return text;
}

json::object logged_json(const LoggedToken& token) {
  json::object out = token_json(token.bytes, token.logprob);
  json::array top;
  for (const auto& [bytes, logprob] : token.top) top.push_back(token_json(bytes, logprob));
  out["top_logprobs"] = std::move(top);
  return out;
}

json::array logged_json(const std::vector<LoggedToken>& tokens) {
  json::array out;
  for (const LoggedToken& token : tokens) out.push_back(logged_json(token));
  return out;
}

json::object usage_json(const ReplyUsage& usage) {
  json::object out = {{"prompt_tokens", usage.prompt_tokens},
                      {"completion_tokens", usage.completion_tokens},
                      {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
                      {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}}};
  if (usage.reasoning_tokens > 0) {
    out["completion_tokens_details"] = {{"reasoning_tokens", usage.reasoning_tokens}};
  }
  out["prompt_cache_hit_tokens"] = usage.cached_tokens;
  out["prompt_cache_miss_tokens"] = usage.prompt_tokens - usage.cached_tokens;
  return out;
}

void add_own(json::object& body, const ReplyHead& head, const ReplyUsage& usage,
             json::value effort) {
  if (usage.restore.empty()) return;
  json::object own = {{"restore", usage.restore},
                      {"replayed_tokens", usage.replayed_tokens},
                      {"effort", std::move(effort)}};
  if (!head.passed_over.empty()) own["passed_over"] = json::value_from(head.passed_over);
  body["fathom"] = std::move(own);
}

json::object head_json(const ReplyHead& head, const char* object) {
  return {{"id", head.id},
          {"object", object},
          {"created", head.created},
          {"model", head.model},
          {"system_fingerprint", head.fingerprint}};
}

}  // namespace fathom
