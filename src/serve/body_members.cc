#include "serve/body_members.h"

namespace fathom {
namespace {

constexpr Protocols operator|(Protocols a, Protocols b) {
  return static_cast<Protocols>(static_cast<unsigned>(a) | static_cast<unsigned>(b));
}
constexpr Protocols only(Protocol one) {
  return static_cast<Protocols>(1U << static_cast<unsigned>(one));
}
constexpr Protocols kNone = {};
constexpr Protocols kChat = only(Protocol::kChat);
constexpr Protocols kMessages = only(Protocol::kMessages);
constexpr Protocols kResponses = only(Protocol::kResponses);
constexpr Protocols kCompletions = only(Protocol::kCompletions);
constexpr Protocols kTalk = kChat | kMessages | kResponses;

// One word for all protocols.
constexpr std::array<const char*, 4> all(const char* text) { return {text, text, text, text}; }

constexpr auto kRules = std::to_array<MemberRule>({
    // Forms of the answer.
    {"response_format",
     kChat | kCompletions,
     kNone,
     R"({"type":"text"})",
     {nullptr, "output_config.format", "text.format", nullptr}},
    {"text",
     kResponses,
     kNone,
     "null",
     {"response_format", "output_config.format", nullptr, "response_format"}},
    {"output_config",
     kMessages,
     kNone,
     "null",
     {"response_format and reasoning_effort", nullptr, "text.format and reasoning.effort",
      "response_format"}},
    {"output_format",
     kMessages,
     kNone,
     "null",
     {"response_format", nullptr, "text.format", "response_format"}},
    {"guided_json", kNone, kNone, "null", all("structured_outputs.json")},
    {"guided_regex", kNone, kNone, "null", all("structured_outputs.regex")},
    {"guided_choice", kNone, kNone, "null", all("structured_outputs.choice")},
    {"guided_grammar", kNone, kNone, "null", all("structured_outputs.grammar")},
    {"json_schema", kNone, kNone, "null", all("structured_outputs.json")},
    {"regex", kNone, kNone, "null", all("structured_outputs.regex")},
    {"ebnf", kNone, kNone, "null", all("structured_outputs.grammar")},
    {"grammar", kNone, kNone, "null", all("structured_outputs.grammar")},
    {"structural_tag", kNone, kNone},
    // Sampling. The published library passes top_k of Messages over.
    {"top_k", kChat | kResponses | kCompletions, kMessages, "-1"},
    {"repeat_penalty", kNone, kNone, "1", all("repetition_penalty")},
    {"logit_bias", kNone, kNone},
    {"typical_p", kNone, kNone, "1"},
    {"mirostat", kNone, kNone, "0"},
    {"dry_multiplier", kNone, kNone, "0"},
    {"xtc_probability", kNone, kNone, "0"},
    {"dynatemp_range", kNone, kNone, "0"},
    {"length_penalty", kNone, kNone, "1"},
    {"use_beam_search", kNone, kNone},
    {"logits_processors", kNone, kNone},
    {"allowed_token_ids", kNone, kNone},
    {"bad_words", kNone, kNone, "null"},
    // Ends of the answer.
    {"stop_sequences", kMessages, kNone, "null", {"stop", nullptr, "stop", "stop"}},
    {"stop_token_ids", kNone, kNone, "null", all("stop")},
    {"include_stop_str_in_output", kNone, kNone},
    {"min_tokens", kNone, kNone, "0"},
    {"n_predict", kNone, kNone, "-1", all("max_tokens")},
    // What is told beside the text, and how many texts.
    {"n", kChat | kCompletions, kNone, "1"},
    {"best_of", kCompletions, kNone, "1"},
    {"echo", kCompletions, kNone},
    {"suffix", kCompletions, kNone},
    {"logprobs", kChat | kCompletions, kNone, "null", {nullptr, nullptr, "top_logprobs", nullptr}},
    {"top_logprobs", kChat | kResponses, kNone, "0", {nullptr, nullptr, nullptr, "logprobs"}},
    {"prompt_logprobs", kCompletions, kNone},
    // The prompt.
    {"thinking", kTalk, kCompletions, R"({"type":"disabled"})"},
    {"reasoning_effort", kTalk, kCompletions, "\"none\""},
    {"chat_template_kwargs", kTalk, kCompletions},
    {"reasoning",
     kResponses,
     kCompletions,
     "null",
     {"reasoning_effort", "output_config.effort", nullptr, nullptr}},
    {"chat_template", kNone, kNone},
    {"documents", kNone, kNone},
    {"add_generation_prompt", kNone, kNone, "true"},
    {"continue_final_message",
     kNone,
     kNone,
     "null",
     {"prefix in the last message", nullptr, nullptr, nullptr}},
    {"truncate_prompt_tokens", kNone, kNone},
    {"prompt_embeds", kNone, kNone},
    {"add_special_tokens", kCompletions, kNone, "true"},
    {"functions", kNone, kNone, "null", {"tools", "tools", "tools", nullptr}},
    {"function_call",
     kNone,
     kNone,
     "\"auto\"",
     {"tool_choice", "tool_choice", "tool_choice", nullptr}},
    {"tools", kTalk, kNone},
    {"parallel_tool_calls", kNone, kTalk | kCompletions, "true"},
    {"web_search_options", kNone, kNone},
    {"audio", kNone, kNone},
    {"modalities", kNone, kNone, R"(["text"])"},
    // What is kept between calls: nothing. The published library passes the id over.
    {"previous_response_id",
     kNone,
     kResponses,
     "null",
     {"messages", "messages", nullptr, "prompt"}},
    {"conversation", kNone, kNone, "null", {"messages", "messages", "input", "prompt"}},
    {"background", kNone, kNone},
    {"store", kNone, kTalk | kCompletions},
    {"container", kNone, kTalk | kCompletions},
    {"mcp_servers", kNone, kTalk | kCompletions},
    {"context_management", kNone, kTalk | kCompletions},
    {"truncation", kNone, kTalk | kCompletions, "\"disabled\""},
});

// Whether the member asks for anything.
bool asks(const Json& value, const char* usual) {
  const Json none = *parse_json(usual);
  if (value.is_null()) return false;
  if (const bool* is = value.as_bool())
    return none.as_bool() != nullptr ? *is != *none.as_bool() : *is;
  if (const JsonArray* items = value.as_array(); items != nullptr && items->empty()) return false;
  if (const JsonObject* members = value.as_object(); members != nullptr && members->empty())
    return false;
  if (const std::string* text = value.as_string(); text != nullptr && text->empty()) return false;
  if (none.as_int64() != nullptr && value.as_double() != nullptr) {
    return *value.as_double() != static_cast<double>(*none.as_int64());
  }
  return json_text(value) != json_text(none);
}

std::string shown(const Json& value) {
  return value.as_bool() != nullptr || value.is_number() ? json_text(value) : value.kind_name();
}

}  // namespace

std::span<const MemberRule> member_rules() { return kRules; }

std::vector<std::string> check_members(BodyFields& fields, Protocol protocol) {
  std::vector<std::string> passed_over;
  for (const MemberRule& rule : kRules) {
    if (has(rule.in_force, protocol)) continue;
    const Json* value = fields.find(rule.name);
    if (value == nullptr || !asks(*value, rule.usual)) continue;
    if (has(rule.passed_over, protocol)) {
      passed_over.emplace_back(rule.name);
      continue;
    }
    const char* instead = rule.instead[static_cast<size_t>(protocol)];
    fields.refuse(rule.name,
                  instead != nullptr ? std::string(instead) + " in its place"
                                     : std::string("nothing, for this route has no such member"),
                  shown(*value));
  }
  return passed_over;
}

}  // namespace fathom
