#include "apps/chat_prompt.h"

namespace fathom {

Result<std::vector<int32_t>> chat_ids(const LoadedModel& loaded, const ChatRequest& request) {
  FATHOM_ASSIGN_OR_RETURN(const ChatTemplate chat,
                          ChatTemplate::load(loaded.path, loaded.model->config().model_type));
  FATHOM_ASSIGN_OR_RETURN(const RenderedPrompt prompt, chat.render(request));
  if (!prompt.images.empty()) {
    return invalid("prompt: wanted text alone, found images, which this version cannot read");
  }
  return loaded.tokenizer->encode(prompt.text.text, prompt.text.markers);
}

ChatMessage user_message(std::string text) {
  ChatMessage message;
  message.role = Role::kUser;
  message.content.emplace_back(std::move(text));
  return message;
}

}  // namespace fathom
