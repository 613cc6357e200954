// Lines of JSON in, lines of JSON out: the text room for tests written in another language.
//
//   chat_driver TOOLS_TEMPLATE.txt [TOKENIZER.json]
//
// {"render": REQUEST} gives {"prompt", "markers" [[begin, end] bytes], "images" [url], "start",
// "tools", "json_mode", "ids" (with a tokenizer)} or {"error"}.
// {"parse": {"text", "start", "tools", "json_mode", "stop", "finish"}} gives {"reasoning",
// "content", "tool_calls" [{"name", "arguments"}], "finish_reason"}.

#include <array>
#include <cstdio>
#include <iostream>
#include <memory>
#include <optional>
#include <string>

#include "base/file.h"
#include "text/chat_template.h"
#include "text/json_text.h"
#include "text/output_parser.h"
#include "text/tokenizer.h"

namespace fathom {
namespace {

constexpr std::array<const char*, 5> kStarts = {"content", "content_continued", "reasoning",
                                                "reasoning_continued", "calls"};

Json text_of(std::string_view text) { return Json(std::string(text)); }
Json number_of(size_t number) { return Json(static_cast<int64_t>(number)); }

Json error_of(const Error& error) { return Json(JsonObject{{"error", text_of(error.message)}}); }

Json render(const Json& body, const ChatTemplate& chat, const Tokenizer* tokenizer) {
  const auto request = parse_chat_request(body);
  if (!request) return error_of(request.error());
  const auto prompt = chat.render(*request);
  if (!prompt) return error_of(prompt.error());
  JsonArray markers;
  for (const ByteRange& range : prompt->text.markers) {
    markers.push_back(Json(JsonArray{number_of(range.begin), number_of(range.end)}));
  }
  JsonArray images;
  for (const ImageRef& image : prompt->images) images.push_back(text_of(image.url));
  const OutputSettings settings = output_settings(*request);
  JsonObject out = {{"prompt", text_of(prompt->text.text)},
                    {"markers", Json(std::move(markers))},
                    {"images", Json(std::move(images))},
                    {"start", text_of(kStarts[static_cast<size_t>(settings.start)])},
                    {"tools", Json(settings.tools)},
                    {"json_mode", Json(settings.json_mode)}};
  if (tokenizer != nullptr) {
    JsonArray ids;
    const auto encoded = tokenizer->encode(prompt->text.text, prompt->text.markers);
    for (const TokenId id : encoded.value()) {
      ids.push_back(Json(int64_t{id}));
    }
    out.push_back({"ids", Json(std::move(ids))});
  }
  return Json(std::move(out));
}

Json parse(const Json& job) {
  OutputSettings settings;
  const std::string start = *job.find("start")->as_string();
  for (size_t i = 0; i < kStarts.size(); ++i) {
    if (start == kStarts[i]) settings.start = static_cast<OutputStart>(i);
  }
  settings.tools = *job.find("tools")->as_bool();
  settings.json_mode = *job.find("json_mode")->as_bool();
  for (const Json& stop : *job.find("stop")->as_array()) {
    settings.stop.push_back(*stop.as_string());
  }
  const std::string finish = *job.find("finish")->as_string();
  const FinishReason engine = finish == "length"           ? FinishReason::kLength
                              : finish == "content_filter" ? FinishReason::kContentFilter
                                                           : FinishReason::kStop;
  const ParsedOutput output = parse_output(*job.find("text")->as_string(), settings, engine);
  JsonArray calls;
  for (const ParsedCall& call : output.tool_calls) {
    calls.push_back(
        Json(JsonObject{{"name", text_of(call.name)}, {"arguments", text_of(call.arguments)}}));
  }
  return Json(JsonObject{{"reasoning", output.reasoning ? text_of(*output.reasoning) : Json()},
                         {"content", text_of(output.content)},
                         {"tool_calls", Json(std::move(calls))},
                         {"finish_reason", text_of(finish_reason_name(output.finish_reason))}});
}

int run(int argc, char** argv) {
  if (argc != 2 && argc != 3) {
    std::cerr << "usage: chat_driver TOOLS_TEMPLATE.txt [TOKENIZER.json] < jobs.jsonl\n";
    return 2;
  }
  const auto format = read_file(argv[1]);
  auto tools = format ? parse_tools_template(*format) : Result<ToolsTemplate>(format.error());
  if (!tools) {
    std::cerr << argv[1] << ": " << tools.error().message << "\n";
    return 1;
  }
  const ChatTemplate chat(std::move(*tools));
  std::optional<Tokenizer> tokenizer;
  if (argc == 3) {
    auto loaded = Tokenizer::load(argv[2]);
    if (!loaded) {
      std::cerr << loaded.error().message << "\n";
      return 1;
    }
    tokenizer.emplace(std::move(*loaded));
  }
  std::string line;
  while (std::getline(std::cin, line)) {
    const auto job = parse_json(line, {.depth_max = 256});
    Json answer;
    if (!job) {
      answer = error_of(job.error());
    } else if (const Json* body = job->find("render")) {
      answer = render(*body, chat, tokenizer ? &*tokenizer : nullptr);
    } else {
      answer = parse(*job->find("parse"));
    }
    std::cout << json_text(answer) << "\n";
  }
  return 0;
}

}  // namespace
}  // namespace fathom

int main(int argc, char** argv) { return fathom::run(argc, argv); }
