#include "serve/translation.h"

namespace fathom {

Json text_part(std::string text) {
  return Json(JsonObject{{"type", Json(std::string("text"))}, {"text", Json(std::move(text))}});
}

Json image_part(std::string url, const Json* detail) {
  JsonObject image = {{"url", Json(std::move(url))}};
  if (detail != nullptr) image.push_back({"detail", *detail});
  return Json(
      JsonObject{{"type", Json(std::string("image_url"))}, {"image_url", Json(std::move(image))}});
}

void Translation::add_message(JsonObject message, const std::string& place) {
  rename("messages[" + std::to_string(messages_.size()) + "]", place);
  messages_.emplace_back(std::move(message));
}

void Translation::add_message(const char* role, Json content, const std::string& place) {
  add_message(JsonObject{{"role", Json(std::string(role))}, {"content", std::move(content)}},
              place);
}

void Translation::add_tool(JsonObject function, const std::string& place, const char* schema) {
  const std::string name = "tools[" + std::to_string(tools_.size()) + "].function";
  rename(name + ".parameters", place + "." + schema);
  rename(name, place);
  tools_.emplace_back(
      JsonObject{{"type", Json(std::string("function"))}, {"function", Json(std::move(function))}});
}

void Translation::set(const char* name, Json value) { body_.push_back({name, std::move(value)}); }

void Translation::rename_part(size_t part, const std::string& place) {
  const std::string name =
      "messages[" + std::to_string(messages_.size()) + "].content[" + std::to_string(part) + "]";
  rename(name, place);
}

std::string Translation::renamed(const std::string& text) const {
  for (const auto& [from, to] : renamings_) {
    if (!text.starts_with(from)) continue;
    const char next = text.size() > from.size() ? text[from.size()] : ':';
    if (next != ':' && next != '.' && next != '[') continue;
    std::string rest = text.substr(from.size());
    constexpr std::string_view kImageUrl = "image_url.url:";
    const size_t image = rest.substr(0, rest.find(' ')).find(kImageUrl);
    if (image != std::string::npos) {
      rest.replace(image, kImageUrl.size() - 1, image_url_);
    }
    return to + rest;
  }
  return text;
}

Result<ChatRequest> Translation::parse(const ChatDefaults& defaults) {
  body_.push_back({"messages", Json(std::move(messages_))});
  if (!tools_.empty()) body_.push_back({"tools", Json(std::move(tools_))});
  Result<ChatRequest> request = parse_chat_request(Json(std::move(body_)), defaults);
  if (!request) return Error{request.error().code, renamed(request.error().message)};
  request->keeps_empty_system = true;
  for (ToolDefinition& tool : request->tools) tool.schema_path = renamed(tool.schema_path);
  for (ChatMessage& message : request->messages) {
    for (ContentPart& part : message.content) {
      if (auto* image = std::get_if<ImageRef>(&part)) image->path = renamed(image->path);
    }
  }
  return request;
}

}  // namespace fathom
