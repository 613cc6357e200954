// Goal: chunks are those of the published library. Method: the Chat Completions cases of
// tests/golden/chat/streams.jsonl, cut as given and byte by byte: the same chunks once the deltas
// of one kind are joined, the same last chunk with its usage.
#include "serve/chat_reply.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <fstream>

namespace fathom {
namespace {

namespace json = boost::json;

// How deltas are cut is free: joins the strings of neighbours with the same members and call.
json::array joined(const json::array& chunks) {
  json::array out;
  const auto texts = [](json::value& chunk) {
    std::vector<json::string*> found;
    json::object& delta = chunk.at("choices").at(0).at("delta").as_object();
    if (delta.contains("tool_calls")) {
      json::object& call = delta.at("tool_calls").at(0).as_object();
      if (!call.contains("id")) found.push_back(&call.at("function").at("arguments").as_string());
    } else if (!delta.contains("role") && chunk.at("choices").at(0).at("finish_reason").is_null()) {
      for (auto& member : delta) {
        if (member.value().is_string()) found.push_back(&member.value().as_string());
      }
    }
    return found;
  };
  for (json::value chunk : chunks) {
    const auto mine = texts(chunk);
    if (!out.empty() && mine.size() == 1) {
      json::value before = out.back();
      const auto theirs = texts(before);
      if (theirs.size() == 1) {
        json::string text = *theirs[0];
        text += *mine[0];
        *theirs[0] = *mine[0];
        if (before == chunk) {
          *theirs[0] = text;
          out.back() = before;
          continue;
        }
      }
    }
    out.push_back(chunk);
  }
  return out;
}

FinishReason reason_of(const std::string& name) {
  if (name == "length") return FinishReason::kLength;
  return name == "stop" ? FinishReason::kStop : FinishReason::kContentFilter;
}

json::array reply_to(const json::value& one, bool byte_by_byte) {
  const auto call = parse_chat_call(json::serialize(one.at("request")));
  EXPECT_TRUE(call);
  ChatReply reply({.id = "ID", .model = "model", .fingerprint = "fp", .call_prefix = "CALL_"},
                  *call);
  json::array chunks = {json::parse(reply.first_chunk())};
  int64_t n_tokens = 0;
  for (const json::value& piece : one.at("chunks").as_array()) {
    if (reply.done()) break;
    n_tokens += 2;
    const std::string text(piece.as_string());
    for (size_t at = 0; at < text.size(); at += byte_by_byte ? 1 : text.size()) {
      const std::string part = byte_by_byte ? text.substr(at, 1) : text;
      if (reply.done()) break;
      for (const std::string& chunk : reply.feed(part)) chunks.push_back(json::parse(chunk));
    }
  }
  const auto reason = reason_of(std::string(one.at("backend_finish").as_string()));
  const ReplyUsage usage = {.prompt_tokens = 7, .cached_tokens = 4, .completion_tokens = n_tokens};
  for (const std::string& chunk : reply.finish(reason, usage)) chunks.push_back(json::parse(chunk));
  EXPECT_EQ(json::parse(reply.whole()).at("usage").at("total_tokens").as_int64(), 7 + n_tokens);
  return chunks;
}

TEST(ChatReply, TheLibrarysStreams) {
  std::ifstream file(std::string(FATHOM_SOURCE_DIR) + "/tests/golden/chat/streams.jsonl");
  int n = 0;
  for (std::string line; std::getline(file, line);) {
    const json::value one = json::parse(line);
    if (one.at("api").as_string() != "chat") continue;
    SCOPED_TRACE(std::string(one.at("name").as_string()));
    ++n;
    json::array want;
    for (const json::value& event : one.at("events").as_array()) want.push_back(event.at(1));
    for (const bool byte_by_byte : {false, true}) {
      EXPECT_EQ(json::serialize(joined(reply_to(one, byte_by_byte))),
                json::serialize(joined(want)));
    }
  }
  EXPECT_EQ(n, 8);
}

TEST(ChatReply, AWholeAnswerCarriesWhatFathomAdds) {
  const auto call = parse_chat_call(R"({"messages":[{"role":"user","content":"x"}]})");
  ChatReply reply({.id = "ID", .model = "m", .fingerprint = "fp"}, *call);
  reply.feed("why</think>because");
  reply.finish(FinishReason::kLength, {.prompt_tokens = 9,
                                       .cached_tokens = 4,
                                       .completion_tokens = 3,
                                       .restore = "bounded",
                                       .replayed_tokens = 2});
  const json::value body = json::parse(reply.whole());
  const json::value& choice = body.at("choices").at(0);
  EXPECT_EQ(choice.at("message").at("reasoning_content").as_string(), "why");
  EXPECT_EQ(choice.at("message").at("content").as_string(), "because");
  EXPECT_EQ(choice.at("finish_reason").as_string(), "length");
  EXPECT_EQ(json::serialize(body.at("fathom")),
            R"({"restore":"bounded","replayed_tokens":2,"effort":75})");
}

TEST(ErrorBody, IsOneObject) {
  EXPECT_EQ(error_body(400, "n: \"x\""),
            R"({"error":{"message":"n: \"x\"","type":"invalid_request_error","param":null,)"
            R"("code":"invalid_request_error"}})");
}

}  // namespace
}  // namespace fathom
