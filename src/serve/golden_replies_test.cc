// Goal: events are those of the published library. Method: all cases of
// tests/golden/chat/streams.jsonl, cut as given, byte by byte and at every single place: the same
// events once neighbouring deltas are joined, the same end; the whole answer says the same.
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <fstream>

#include "serve/chat_reply.h"
#include "serve/messages_call.h"
#include "serve/messages_reply.h"
#include "serve/responses_reply.h"

namespace fathom {
namespace {

namespace json = boost::json;

std::unique_ptr<Reply> reply_of(const std::string& api, const std::string& body) {
  ReplyHead head = {.id = "ID", .model = "model", .fingerprint = "fp", .call_prefix = "CALL_"};
  if (api == "chat") return std::make_unique<ChatReply>(head, *parse_chat_call(body));
  if (api == "messages") return std::make_unique<MessagesReply>(head, *parse_messages_call(body));
  return std::make_unique<ResponsesReply>(head, *parse_responses_call(body));
}

// The member of an event that may be cut anywhere; null: the event has none.
json::string* text_of(json::value& event) {
  if (json::value* delta = event.as_object().if_contains("delta")) {
    if (delta->is_string()) return &delta->as_string();
    for (const char* name : {"text", "thinking", "partial_json"}) {
      json::value* text = delta->as_object().if_contains(name);
      if (text != nullptr) return &text->as_string();
    }
    return nullptr;
  }
  json::value* choices = event.as_object().if_contains("choices");
  if (choices == nullptr || !choices->at(0).at("finish_reason").is_null()) return nullptr;
  json::object& delta = choices->at(0).at("delta").as_object();
  if (delta.contains("role")) return nullptr;
  if (delta.contains("tool_calls")) {
    json::object& call = delta.at("tool_calls").at(0).as_object();
    return call.contains("id") ? nullptr : &call.at("function").at("arguments").as_string();
  }
  for (auto& member : delta) {
    if (member.value().is_string()) return &member.value().as_string();
  }
  return nullptr;
}

// Adds the text of `event` to `last`, where both are alike but for it.
bool join(json::value& last, json::value event) {
  json::string* theirs = text_of(last.at(1));
  json::string* mine = text_of(event.at(1));
  if (theirs == nullptr || mine == nullptr) return false;
  const json::string text = *mine;
  *mine = *theirs;
  if (event != last) return false;
  *theirs += text;
  return true;
}

// How deltas are cut is free, and so are the numbers that count events; times are set to 0.
json::array joined(json::array events) {
  json::array out;
  int64_t last_number = -1;
  for (json::value& event : events) {
    json::object& body = event.at(1).as_object();
    if (body.contains("sequence_number")) {
      EXPECT_EQ(body.at("sequence_number").to_number<int64_t>(), ++last_number);
      body.erase("sequence_number");
    }
    if (body.contains("response") && !body.at("response").at("completed_at").is_null()) {
      body.at("response").at("completed_at") = 0;
    }
    if (out.empty() || !join(out.back(), event)) out.push_back(event);
  }
  return out;
}

FinishReason reason_of(const std::string& name) {
  if (name == "length") return FinishReason::kLength;
  return name == "stop" ? FinishReason::kStop : FinishReason::kContentFilter;
}

struct Said {
  json::array events;
  json::value whole;
  std::string end;
};

// Each piece of the case counts two tokens; `cut` says how it is cut further.
using Cut = std::function<std::vector<std::string>(const std::string& piece, size_t begin)>;

Said say(const json::value& one, const Cut& cut) {
  const auto reply =
      reply_of(std::string(one.at("api").as_string()), json::serialize(one.at("request")));
  Said said;
  const auto add = [&](const ReplyEvents& events) {
    for (const ReplyEvent& event : events) {
      const json::value name = event.name.empty() ? json::value() : json::value(event.name);
      said.events.push_back(json::array{name, json::parse(event.data)});
    }
  };
  ReplyUsage usage = {.prompt_tokens = 7, .cached_tokens = 4};
  add(reply->open());
  add(reply->begin(usage));
  size_t begin = 0;
  for (const json::value& piece : one.at("chunks").as_array()) {
    if (reply->done(0)) break;
    usage.completion_tokens += 2;
    const std::string text(piece.as_string());
    for (const std::string& part : cut(text, begin)) {
      if (!reply->done(0)) add(reply->feed(0, {.text = part}));
    }
    begin += text.size();
  }
  add(reply->finish(0, reason_of(std::string(one.at("backend_finish").as_string())), usage));
  said.whole = json::parse(reply->whole());
  said.end = reply->end_data();
  return said;
}

std::vector<std::string> bytes_of(const std::string& piece, size_t /*begin*/) {
  std::vector<std::string> bytes;
  for (const char byte : piece) bytes.emplace_back(1, byte);
  return bytes;
}

// Members of an object may come in any order.
std::string first_difference(const json::array& found, const json::array& want) {
  for (size_t i = 0; i < std::max(found.size(), want.size()); ++i) {
    const json::value a = i < found.size() ? found[i] : json::value();
    const json::value b = i < want.size() ? want[i] : json::value();
    if (a != b) {
      return "event " + std::to_string(i) + ": wanted " + json::serialize(b) + ", found " +
             json::serialize(a);
    }
  }
  return "";
}

// The last event of Responses carries the whole answer; those of the others are added up.
void expect_whole(const std::string& api, Said& said) {
  if (api != "responses") return;
  json::value last = said.events.back().at(1).at("response");
  said.whole.at("completed_at") = last.at("completed_at");
  EXPECT_EQ(said.whole, last);
}

TEST(GoldenReplies, AreAllAsWithTheLibrary) {
  std::ifstream file(std::string(FATHOM_SOURCE_DIR) + "/tests/golden/chat/streams.jsonl");
  std::map<std::string, int> n;
  for (std::string line; std::getline(file, line);) {
    const json::value one = json::parse(line);
    const std::string api(one.at("api").as_string());
    SCOPED_TRACE(api + " " + std::string(one.at("name").as_string()));
    ++n[api];
    const json::array want = joined(one.at("events").as_array());
    std::vector<Cut> cuts = {
        [](const std::string& piece, size_t) { return std::vector<std::string>{piece}; }, bytes_of};
    size_t n_bytes = 0;
    for (const json::value& piece : one.at("chunks").as_array())
      n_bytes += piece.as_string().size();
    for (size_t place = 1; place < n_bytes; ++place) {
      cuts.push_back([place](const std::string& piece, size_t begin) {
        if (place <= begin || place >= begin + piece.size()) return std::vector<std::string>{piece};
        return std::vector<std::string>{piece.substr(0, place - begin),
                                        piece.substr(place - begin)};
      });
    }
    for (const Cut& cut : cuts) {
      Said said = say(one, cut);
      ASSERT_EQ(first_difference(joined(said.events), want), "");
      expect_whole(api, said);
      EXPECT_EQ(said.end, one.at("done").is_null() ? "" : one.at("done").as_string());
    }
  }
  EXPECT_EQ(n, (std::map<std::string, int>{{"chat", 8}, {"messages", 8}, {"responses", 8}}));
}

}  // namespace
}  // namespace fathom
