// Goal: what is in force after conversion, the prompt, and what is refused are as with the
// published library. Method: all cases of tests/golden/chat/requests.jsonl. What fathom takes
// beyond it (a limit under another protocol's name) stands in other members and is not compared.
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <fstream>

#include "serve/chat_call.h"
#include "serve/messages_call.h"
#include "serve/responses_call.h"
#include "text/chat_template.h"

namespace fathom {
namespace {

namespace json = boost::json;

Result<ChatCall> parse_call(const std::string& api, const std::string& body) {
  if (api == "messages") return parse_messages_call(body);
  if (api == "chat") return parse_chat_call(body);
  FATHOM_ASSIGN_OR_RETURN(ResponsesCall call, parse_responses_call(body));
  return call.chat;
}

// The two halves of the tools block are the words that the golden file has in their place.
ChatTemplate with_placeholder_halves() {
  return ChatTemplate(*parse_tools_template(
      "{{{{TOOLS_TEMPLATE_HEAD}}}}{tool_schemas}{{{{TOOLS_TEMPLATE_TAIL}}}}"));
}

void expect_in_force(const json::value& want, const ChatCall& call) {
  EXPECT_EQ(call.request.thinking, want.at("thinking").as_bool());
  EXPECT_EQ(call.sampling.temperature, want.at("temperature").to_number<double>());
  EXPECT_EQ(call.sampling.top_p, want.at("top_p").to_number<double>());
  EXPECT_EQ(json::value_from(call.request.stop), want.at("stop"));
  const json::value& max_tokens = want.at("max_tokens");
  ASSERT_EQ(call.max_tokens.has_value(), !max_tokens.is_null());
  if (call.max_tokens) {
    EXPECT_EQ(*call.max_tokens, max_tokens.as_int64());
  }
  const auto prompt = with_placeholder_halves().render(call.request);
  ASSERT_TRUE(prompt) << prompt.error().message;
  EXPECT_EQ(prompt->text.text, want.at("prompt").as_string());
  EXPECT_EQ(static_cast<int64_t>(prompt->images.size()), want.at("images").as_int64());
}

TEST(GoldenCalls, AreAllAsWithTheLibrary) {
  std::ifstream file(std::string(FATHOM_SOURCE_DIR) + "/tests/golden/chat/requests.jsonl");
  std::map<std::string, std::pair<int, int>> n;  // taken and refused
  for (std::string line; std::getline(file, line);) {
    const json::value want = json::parse(line);
    const std::string api(want.at("api").as_string());
    SCOPED_TRACE(std::string(want.at("name").as_string()));
    const auto call = parse_call(api, json::serialize(want.at("request")));
    if (want.as_object().contains("error_status")) {
      EXPECT_FALSE(call);
      ++n[api].second;
      continue;
    }
    ++n[api].first;
    ASSERT_TRUE(call) << call.error().message;
    expect_in_force(want, *call);
  }
  EXPECT_EQ(n.at("chat"), std::pair(6, 10));
  EXPECT_EQ(n.at("messages"), std::pair(12, 0));
  EXPECT_EQ(n.at("responses"), std::pair(14, 0));
}

}  // namespace
}  // namespace fathom
