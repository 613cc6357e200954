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

// The one text of a chunk that may be cut anywhere; null: the chunk has none.
json::string* text_of(json::value& chunk) {
  json::value& choice = chunk.at("choices").at(0);
  json::object& delta = choice.at("delta").as_object();
  if (delta.contains("role") || !choice.at("finish_reason").is_null()) return nullptr;
  if (delta.contains("tool_calls")) {
    json::object& call = delta.at("tool_calls").at(0).as_object();
    return call.contains("id") ? nullptr : &call.at("function").at("arguments").as_string();
  }
  for (auto& member : delta) {
    if (member.value().is_string()) return &member.value().as_string();
  }
  return nullptr;
}

// Adds the text of `chunk` to `last`, where both are alike but for it.
bool join(json::value& last, json::value chunk) {
  json::string* theirs = text_of(last);
  json::string* mine = text_of(chunk);
  if (theirs == nullptr || mine == nullptr) return false;
  const json::string text = *mine;
  *mine = *theirs;
  if (chunk != last) return false;
  *theirs += text;
  return true;
}

// How deltas are cut is free.
json::array joined(const json::array& chunks) {
  json::array out;
  for (const json::value& chunk : chunks) {
    if (out.empty() || !join(out.back(), chunk)) out.push_back(chunk);
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
