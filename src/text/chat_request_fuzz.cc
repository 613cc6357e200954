// Any bytes as a request body: a request that renders, or one line of refusal. What was accepted
// renders the same twice, with marker ranges that ascend inside the text and one placeholder an
// image; its JSON survives being written and read again.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "text/chat_template.h"
#include "text/json_text.h"
#include "text/markers.h"
#include "text/output_parser.h"

namespace fathom {
namespace {

const ChatTemplate& chat_template() {
  static const ChatTemplate chat(
      *parse_tools_template("<{dsml_token}{tc_block_name}>\n{tool_schemas}\n"));
  return chat;
}

void check_prompt(const RenderedPrompt& prompt) {
  size_t at = 0;
  size_t images = 0;
  for (const ByteRange& range : prompt.text.markers) {
    FATHOM_CHECK(range.begin >= at);
    FATHOM_CHECK(range.end > range.begin);
    at = range.end;
    FATHOM_CHECK(at <= prompt.text.text.size());
    const std::string_view text = prompt.text.text;
    images += text.substr(range.begin, range.end - range.begin) == kImageText;
  }
  FATHOM_CHECK(images == prompt.images.size());
}

void check_request(std::string_view body) {
  const auto json = parse_json(body);
  if (!json) {
    FATHOM_CHECK(json.error().message.find('\n') == std::string::npos);
    return;
  }
  const std::string text = json_text(*json);
  const auto again = parse_json(text);
  FATHOM_CHECK(again.has_value());
  FATHOM_CHECK(json_text(*again) == text);

  const auto request = parse_chat_request(*json);
  if (!request) {
    FATHOM_CHECK(!request.error().message.empty());
    FATHOM_CHECK(request.error().message.find('\n') == std::string::npos);
    return;
  }
  const auto prompt = chat_template().render(*request);
  FATHOM_CHECK(prompt.has_value());
  check_prompt(*prompt);
  FATHOM_CHECK(chat_template().render(*request)->text.text == prompt->text.text);
  static_cast<void>(parse_output("x", output_settings(*request)));
}

}  // namespace
}  // namespace fathom

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fathom::check_request({reinterpret_cast<const char*>(data), size});
  return 0;
}
