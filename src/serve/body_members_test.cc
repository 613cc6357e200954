// Goal: no member that one route has in force is passed over in silence by another. Method: each
// row of the table and each member that all routes have, on each route: a value of the wrong form
// is refused by its name where the row says that it is in force, so it is read there; elsewhere it
// is refused or named in the answer; what asks for nothing is taken everywhere.
#include "serve/body_members.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "serve/answer_form.h"
#include "serve/completions_call.h"
#include "serve/messages_call.h"
#include "serve/responses_call.h"

namespace fathom {
namespace {

constexpr std::array kProtocols = {Protocol::kChat, Protocol::kMessages, Protocol::kResponses,
                                   Protocol::kCompletions};
constexpr const char* kTalk = R"("messages":[{"role":"user","content":"x"}])";

// What a body came to on its route.
struct Read {
  std::string refusal;
  ExtraFields extra;
  SamplingOptions sampling;
  std::optional<int64_t> max_tokens;
  bool thinking = false;
  int effort = 0;
  Result<std::optional<Grammar>> form = std::optional<Grammar>();
};

Read of(const Result<ChatCall>& call) {
  if (!call) return {.refusal = call.error().message};
  return {.extra = call->extra,
          .sampling = call->sampling,
          .max_tokens = call->max_tokens ? call->max_tokens : call->other_max_tokens,
          .thinking = call->request.thinking,
          .effort = call->request.effort,
          .form = answer_form(*call)};
}

Read read(Protocol protocol, const std::string& members, int effort = 0) {
  const std::string more = members.empty() ? "}" : "," + members + "}";
  const std::string talk = std::string("{") + kTalk + more;
  if (protocol == Protocol::kChat) return of(parse_chat_call(talk, effort));
  if (protocol == Protocol::kMessages) return of(parse_messages_call(talk, effort));
  if (protocol == Protocol::kResponses) {
    const auto call = parse_responses_call(R"({"input":"x")" + more, effort);
    return of(call ? Result<ChatCall>(call->chat) : call.error());
  }
  const auto call = parse_completions_call(R"({"prompt":"x")" + more);
  if (!call) return {.refusal = call.error().message};
  return {.extra = call->common.extra,
          .sampling = call->common.sampling,
          .max_tokens = call->max_tokens ? *call->max_tokens : call->usual_max_tokens,
          .form = answer_form(call->form)};
}

std::string member(const std::string& name, const std::string& value) {
  return "\"" + name + "\":" + value;
}

TEST(BodyMembers, EachRouteReadsRefusesOrNamesThem) {
  for (const MemberRule& rule : member_rules()) {
    for (const Protocol protocol : kProtocols) {
      SCOPED_TRACE(std::string(rule.name) + " " + std::to_string(static_cast<int>(protocol)));
      const Read odd = read(protocol, member(rule.name, "[{}]"));
      const auto& passed_over = odd.extra.passed_over;
      if (has(rule.passed_over, protocol)) {
        EXPECT_EQ(odd.refusal, "");
        EXPECT_EQ(std::ranges::count(passed_over, rule.name), 1);
      } else {
        EXPECT_TRUE(odd.refusal.starts_with(rule.name)) << odd.refusal;
        const bool unknown = odd.refusal.find("in its place, found") != std::string::npos ||
                             odd.refusal.find("no such member") != std::string::npos;
        EXPECT_NE(unknown, has(rule.in_force, protocol)) << odd.refusal;
      }
      for (const char* nothing : {"null", rule.usual}) {
        if (has(rule.in_force, protocol)) continue;
        const Read read_nothing = read(protocol, member(rule.name, nothing));
        EXPECT_EQ(read_nothing.refusal, "");
        EXPECT_TRUE(read_nothing.extra.passed_over.empty());
      }
    }
  }
}

TEST(BodyMembers, AllRoutesReadWhatIsTheirOwnAndFathoms) {
  for (const Protocol protocol : kProtocols) {
    SCOPED_TRACE(static_cast<int>(protocol));
    for (const char* name :
         {"model", "stream", "temperature", "top_p", "min_p", "repetition_penalty",
          "presence_penalty", "frequency_penalty", "seed", "restore", "ignore_eos", "stop",
          "max_tokens", "max_completion_tokens", "max_output_tokens"}) {
      const Read odd = read(protocol, member(name, "[{}]"));
      EXPECT_TRUE(odd.refusal.starts_with(name)) << name << ": " << odd.refusal;
    }
    const Read all = read(protocol, R"("min_p":0.25,"repetition_penalty":1.5,"ignore_eos":true,)"
                                    R"("max_completion_tokens":7,"restore":"exact")");
    EXPECT_EQ(all.refusal, "");
    EXPECT_EQ(all.sampling.min_p, 0.25);
    EXPECT_EQ(all.sampling.repetition_penalty, 1.5);
    EXPECT_TRUE(all.extra.ignore_eos);
    EXPECT_EQ(all.extra.restore, RestoreGrade::kExact);
    EXPECT_EQ(all.max_tokens, 7);
    const char* own = protocol == Protocol::kResponses ? "max_output_tokens" : "max_tokens";
    EXPECT_EQ(read(protocol, member(own, "5") + R"(,"max_completion_tokens":7)").max_tokens, 5);
    const int64_t top_k = protocol == Protocol::kMessages ? 0 : 3;  // spec/api.md 5
    EXPECT_EQ(read(protocol, R"("top_k":3)").sampling.top_k, top_k);
    EXPECT_EQ(read(protocol, R"("top_k":-1)").sampling.top_k, 0);
  }
}

TEST(BodyMembers, AllRoutesHaveStructuredOutputsInForce) {
  const auto digest = [](const Read& read) { return (*read.form)->digest; };
  for (const char* form : {R"({"regex":"yes|no"})", R"({"choice":["yes","no"]})",
                           R"({"json":{"type":"object"}})", R"({"grammar":"root ::= \"yes\""})"}) {
    const Read chat = read(Protocol::kChat, member("structured_outputs", form));
    ASSERT_TRUE(chat.form && *chat.form) << form;
    for (const Protocol protocol : kProtocols) {
      EXPECT_EQ(digest(read(protocol, member("structured_outputs", form))), digest(chat)) << form;
    }
  }
  for (const Protocol protocol : kProtocols) {
    SCOPED_TRACE(static_cast<int>(protocol));
    const auto refusal = [&](const std::string& form) {
      const Read bad = read(protocol, member("structured_outputs", form));
      return bad.form ? std::string() : bad.form.error().message;
    };
    EXPECT_TRUE(refusal(R"({"regex":"(yes|no"})").starts_with("structured_outputs.regex: byte "));
    EXPECT_EQ(refusal("3"),
              "structured_outputs: wanted an object with one of json, regex, choice and grammar, "
              "found a number");
    EXPECT_EQ(refusal(R"({"choice":["a",1]})"),
              "structured_outputs.choice[1]: wanted a string, found a number");
    EXPECT_EQ(refusal(R"({"choice":[]})"),
              "structured_outputs.choice: wanted an array of at least one string, found none");
    const std::string large = "{\"regex\":\"" + std::string(70'000, 'a') + "\"}";
    const Read refused = read(protocol, member("structured_outputs", large));
    ASSERT_FALSE(refused.form);
    EXPECT_EQ(refused.form.error().code, ErrorCode::kInvalid);  // 400: it will never fit
  }
}

TEST(BodyMembers, AllConversationsTakeThinkingUnderEachName) {
  for (const Protocol protocol : {Protocol::kChat, Protocol::kMessages, Protocol::kResponses}) {
    SCOPED_TRACE(static_cast<int>(protocol));
    const auto effort = [&](const std::string& members, int usual) {
      const Read got = read(protocol, members, usual);
      EXPECT_EQ(got.refusal, "");
      return got.thinking ? got.effort : 0;
    };
    EXPECT_EQ(effort("", 75), 75);
    EXPECT_EQ(effort("", 20), 20);
    EXPECT_EQ(effort("", 0), 0);
    EXPECT_EQ(effort(R"("thinking":{"type":"disabled"})", 20), 0);
    EXPECT_EQ(effort(R"("thinking":{"type":"enabled"})", 0), kEffortHigh);
    EXPECT_EQ(effort(R"("reasoning_effort":"low")", 0), kEffortLow);
    EXPECT_EQ(effort(R"("reasoning_effort":"none")", 20), 0);
    EXPECT_EQ(effort(R"("chat_template_kwargs":{"thinking":false})", 20), 0);
    EXPECT_EQ(effort(R"("chat_template_kwargs":{"enable_thinking":true})", 0), kEffortHigh);
    EXPECT_EQ(effort(R"("chat_template_kwargs":{"reasoning_effort":42})", 0), 42);
    EXPECT_EQ(effort(R"("chat_template_kwargs":{"thinking":false},"reasoning_effort":9)", 0), 9);
    EXPECT_EQ(read(protocol, R"("chat_template_kwargs":{"custom":1})").refusal,
              "chat_template_kwargs.custom: wanted thinking, enable_thinking or reasoning_effort "
              "in its place, found a number");
  }
}

TEST(BodyMembers, ARefusalNamesTheWayOut) {
  EXPECT_EQ(read(Protocol::kChat, R"("guided_json":{"type":"object"})").refusal,
            "guided_json: wanted structured_outputs.json in its place, found an object");
  EXPECT_EQ(read(Protocol::kMessages, R"("response_format":{"type":"json_object"})").refusal,
            "response_format: wanted output_config.format in its place, found an object");
  EXPECT_EQ(read(Protocol::kChat, R"("logit_bias":{"5":-100})").refusal,
            "logit_bias: wanted nothing, for this route has no such member, found an object");
  EXPECT_EQ(read(Protocol::kResponses, R"("background":true)").refusal,
            "background: wanted nothing, for this route has no such member, found true");
  EXPECT_EQ(
      read(Protocol::kCompletions, R"("response_format":{"type":"json"})").refusal.substr(0, 22),
      "response_format.type: ");
  EXPECT_EQ(read(Protocol::kChat, R"("n":2)").refusal,
            "n: wanted 1 (more choices are a matter of Completions), found 2");
  EXPECT_EQ(read(Protocol::kCompletions, R"("max_tokens":0)").refusal,
            "max_tokens: wanted 1 or more without echo and prompt_logprobs, found 0");
  EXPECT_EQ(read(Protocol::kCompletions, R"("max_tokens":0,"echo":true)").refusal, "");
}

}  // namespace
}  // namespace fathom
