// Lines of JSON in, lines of JSON out: the serve room for tests written in another language.
//
//   protocol_driver TOOLS_TEMPLATE.txt
//
// {"api": "messages" or "responses" or "chat", "request", "chunks" [text], "finish"} gives
// {"prompt", "images", "thinking", "temperature", "top_p", "max_tokens", "stop", "events" [[name,
// event]], "whole"} or {"error"}. Each chunk counts two tokens; the prompt has 7, 4 of them cached.

#include <algorithm>
#include <boost/json.hpp>
#include <iostream>
#include <memory>
#include <string>

#include "base/file.h"
#include "serve/chat_reply.h"
#include "serve/messages_call.h"
#include "serve/messages_reply.h"
#include "serve/responses_reply.h"
#include "text/chat_template.h"

namespace fathom {
namespace {

namespace json = boost::json;

struct Parsed {
  ChatCall call;
  std::unique_ptr<Reply> reply;
};

Result<Parsed> parse_call(const std::string& api, const std::string& body) {
  const ReplyHead head = {
      .id = "ID", .model = "model", .fingerprint = "fp", .call_prefix = "CALL_"};
  if (api == "chat") {
    FATHOM_ASSIGN_OR_RETURN(ChatCall call, parse_chat_call(body));
    return Parsed{call, std::make_unique<ChatReply>(head, call)};
  }
  if (api == "messages") {
    FATHOM_ASSIGN_OR_RETURN(ChatCall call, parse_messages_call(body));
    return Parsed{call, std::make_unique<MessagesReply>(head, call)};
  }
  FATHOM_ASSIGN_OR_RETURN(ResponsesCall call, parse_responses_call(body));
  return Parsed{call.chat, std::make_unique<ResponsesReply>(head, call)};
}

json::array events_of(Reply& reply, const json::object& job) {
  json::array out;
  const auto add = [&](const ReplyEvents& events) {
    for (const ReplyEvent& event : events) {
      const json::value name = event.name.empty() ? json::value() : json::value(event.name);
      out.push_back(json::array{name, json::parse(event.data, {}, {.max_depth = 256})});
    }
  };
  const json::array& chunks = job.at("chunks").as_array();
  ReplyUsage usage = {.prompt_tokens = 7, .cached_tokens = 4};
  add(reply.open());
  add(reply.begin(usage));
  for (const json::value& chunk : chunks) {
    if (!reply.done(0)) add(reply.feed(0, {.text = chunk.as_string()}));
  }
  usage.completion_tokens = 2 * static_cast<int64_t>(chunks.size());
  const std::string finish(job.at("finish").as_string());
  const FinishReason reason = finish == "length"           ? FinishReason::kLength
                              : finish == "content_filter" ? FinishReason::kContentFilter
                                                           : FinishReason::kStop;
  add(reply.finish(0, reason, usage));
  return out;
}

json::object answer(const json::object& job, const ChatTemplate& chat) {
  const auto parsed =
      parse_call(std::string(job.at("api").as_string()), json::serialize(job.at("request")));
  if (!parsed) return {{"error", parsed.error().message}};
  const ChatCall& call = parsed->call;
  const auto prompt = chat.render(call.request);
  if (!prompt) return {{"error", prompt.error().message}};
  json::array events = events_of(*parsed->reply, job);
  return {{"prompt", prompt->text.text},
          {"images", prompt->images.size()},
          {"thinking", call.request.thinking},
          {"temperature", call.sampling.temperature},
          {"top_p", call.sampling.top_p},
          {"max_tokens", call.max_tokens ? json::value(std::min(*call.max_tokens, kMaxTokensMax))
                                         : json::value()},
          {"stop", json::value_from(call.request.stop)},
          {"events", std::move(events)},
          {"whole", json::parse(parsed->reply->whole(), {}, {.max_depth = 256})}};
}

int run(int argc, char** argv) {
  const auto format = argc == 2 ? read_file(argv[1]) : Result<std::string>(std::string());
  auto tools = format ? parse_tools_template(*format) : Result<ToolsTemplate>(format.error());
  if (argc != 2 || !tools) {
    std::cerr << "usage: protocol_driver TOOLS_TEMPLATE.txt < jobs.jsonl\n"
              << (tools ? "" : tools.error().message) << "\n";
    return 2;
  }
  const ChatTemplate chat(std::move(*tools));
  for (std::string line; std::getline(std::cin, line);) {
    const json::value job = json::parse(line, {}, {.max_depth = 256});
    std::cout << json::serialize(answer(job.as_object(), chat)) << "\n";
  }
  return 0;
}

}  // namespace
}  // namespace fathom

int main(int argc, char** argv) { return fathom::run(argc, argv); }
