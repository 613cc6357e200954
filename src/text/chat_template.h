#pragma once

// Messages, tools, thinking and images become one prompt (spec/chat.md 2 to 5), byte for byte as
// the published server library writes it.
//
// Canonical: the same request gives the same bytes in every process; everything keeps the order in
// which the request gives it. A plain value after load; any number of threads may render at once.

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "text/chat_request.h"
#include "text/marked_text.h"
#include "text/tools_template.h"

namespace fathom {

struct RenderedPrompt {
  MarkedText text;               // begins with the BOS marker
  std::vector<ImageRef> images;  // in the order in which their placeholders stand in the text
};

class ChatTemplate {
 public:
  // Without a tools text, requests that offer tools are refused (kNotFound).
  ChatTemplate() = default;
  explicit ChatTemplate(ToolsTemplate tools) : tools_(std::move(tools)) {}

  // For the `model_type` of a config.json: deepseek_v41 and no other (kInvalid). A folder without a
  // tools text is not an error.
  static Result<ChatTemplate> load(const std::string& model_dir, const std::string& model_type);

  // `generation`: behind the messages the header of the turn that the model is to write.
  Result<RenderedPrompt> render(const ChatRequest& request, bool generation = true) const;

 private:
  std::optional<ToolsTemplate> tools_;
};

}  // namespace fathom
