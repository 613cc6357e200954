#include "serve/messages_input.h"

#include <algorithm>
#include <set>
#include <utility>

#include "text/quote.h"

namespace fathom {
namespace {

constexpr const char* kSeparator = "\n\n";

std::string item(const std::string& list, size_t i) { return list + "[" + std::to_string(i) + "]"; }

// What stands for a document, which no model here reads (the published library writes the same).
Result<Json> document_of(const Json& block, const std::string& place) {
  BodyFields outer(block, place);
  const Json* source = outer.object("source");
  if (source == nullptr) outer.refuse("source", "an object", "nothing");
  FATHOM_RETURN_IF_ERROR(outer.done());
  BodyFields fields(*source, place + ".source");
  std::string type = "unknown";
  fields.text("media_type", type);
  FATHOM_RETURN_IF_ERROR(fields.done());
  return text_part("[Unsupported document type: " + type + "]");
}

Result<Json> image_of(const Json& block, const std::string& place) {
  constexpr const char* kTypes[] = {"image/jpeg", "image/jpg", "image/png", "image/gif",
                                    "image/webp"};
  BodyFields outer(block, place);
  const Json* source = outer.object("source");
  if (source == nullptr) outer.refuse("source", "an object", "nothing");
  FATHOM_RETURN_IF_ERROR(outer.done());
  BodyFields fields(*source, place + ".source");
  const std::string type = fields.required_text("type");
  std::string url;
  if (type == "url") {
    url = fields.required_text("url");
  } else if (type == "base64") {
    const std::string media = fields.required_text("media_type");
    if (std::ranges::find(kTypes, media) == std::end(kTypes)) {
      fields.refuse("media_type", "a type of JPEG, PNG, GIF or WebP", quote(media));
    }
    url = "data:" + media + ";base64," + fields.required_text("data");
  } else {
    fields.refuse("type", "base64 or url", quote(type));
  }
  FATHOM_RETURN_IF_ERROR(fields.done());
  return image_part(std::move(url), nullptr);
}

// Text, image and document: what a user's turn and a result may hold.
Result<Json> plain_block(const Json& block, const std::string& type, const std::string& place) {
  if (type == "image") return image_of(block, place);
  if (type == "document") return document_of(block, place);
  BodyFields fields(block, place);
  std::string text = fields.required_text("text");
  FATHOM_RETURN_IF_ERROR(fields.done());
  return text_part(std::move(text));
}

bool is_plain(const std::string& type) {
  return type == "text" || type == "image" || type == "document";
}

// A string, or text blocks (with `images`: image and document blocks too).
Result<Json> plain_content(const Json& content, bool images, const std::string& place) {
  if (content.as_string() != nullptr) return content;
  if (content.as_array() == nullptr) {
    return invalid(place + ": wanted a string or an array, found " + content.kind_name());
  }
  JsonArray parts;
  for (size_t i = 0; i < content.as_array()->size(); ++i) {
    const Json& block = (*content.as_array())[i];
    BodyFields fields(block, item(place, i));
    const std::string type = fields.required_text("type");
    if (!is_plain(type) || (type != "text" && !images)) {
      fields.refuse("type", images ? "text, image or document" : "text", quote(type));
    }
    FATHOM_RETURN_IF_ERROR(fields.done());
    FATHOM_ASSIGN_OR_RETURN(Json part, plain_block(block, type, item(place, i)));
    parts.push_back(std::move(part));
  }
  return Json(std::move(parts));
}

class MessagesReader {
 public:
  explicit MessagesReader(Translation& translation) : translation_(translation) {}

  Result<void> read(const Json& message, const std::string& place) {
    BodyFields fields(message, place);
    const std::string role = fields.required_text("role");
    if (role != "user" && role != "assistant" && role != "system") {
      fields.refuse("role", "user, assistant or system", quote(role));
    }
    const Json* content = fields.find("content");
    if (content == nullptr) fields.refuse("content", "a string or an array", content);
    FATHOM_RETURN_IF_ERROR(fields.done());
    const std::string inside = place + ".content";
    FATHOM_RETURN_IF_ERROR(check_results(*content, inside));
    if (content->as_array() == nullptr || role == "system") {
      FATHOM_ASSIGN_OR_RETURN(Json plain, plain_content(*content, false, inside));
      translation_.add_message(role.c_str(), std::move(plain), place);
      return {};
    }
    if (content->as_array()->empty()) {
      return invalid(inside + ": wanted at least one block, found none");
    }
    return role == "user" ? user(*content->as_array(), place)
                          : assistant(*content->as_array(), place);
  }

 private:
  // The message after calls begins with a result for each of them.
  Result<void> check_results(const Json& content, const std::string& place) {
    std::set<std::string> open = std::exchange(open_, {});
    if (content.as_array() != nullptr) {
      for (const Json& block : *content.as_array()) {
        const Json* type = block.find("type");
        const Json* id = block.find("tool_use_id");
        if (type == nullptr || type->as_string() == nullptr || *type->as_string() != "tool_result")
          break;
        if (id != nullptr && id->as_string() != nullptr) open.erase(*id->as_string());
      }
    }
    if (open.empty()) return {};
    return invalid(place + ": wanted a tool_result for each tool_use before it, found none for " +
                   quote(*open.begin()));
  }

  Result<void> user(const JsonArray& blocks, const std::string& place) {
    JsonArray parts;
    for (size_t i = 0; i < blocks.size(); ++i) {
      const std::string here = item(place + ".content", i);
      BodyFields fields(blocks[i], here);
      const std::string type = fields.required_text("type");
      FATHOM_RETURN_IF_ERROR(fields.done());
      if (type == "tool_result" && parts.empty()) {
        FATHOM_RETURN_IF_ERROR(result(fields, here));
      } else if (is_plain(type)) {
        FATHOM_ASSIGN_OR_RETURN(Json part, plain_block(blocks[i], type, here));
        translation_.rename_part(parts.size(), here);
        parts.push_back(std::move(part));
      } else {
        const bool late = type == "tool_result";
        fields.refuse("type",
                      late ? "results ahead of all else"
                           : "text, image, document or "
                             "tool_result in a user's turn",
                      quote(type));
        return fields.done();
      }
    }
    if (!parts.empty()) translation_.add_message("user", Json(std::move(parts)), place);
    return {};
  }

  Result<void> result(BodyFields& fields, const std::string& place) {
    JsonObject message = {{"role", Json(std::string("tool"))},
                          {"tool_call_id", Json(fields.required_text("tool_use_id"))}};
    FATHOM_RETURN_IF_ERROR(fields.done());
    Json content(std::string{});
    if (const Json* given = fields.find("content")) {
      FATHOM_ASSIGN_OR_RETURN(content, plain_content(*given, true, place + ".content"));
    }
    message.push_back({"content", std::move(content)});
    translation_.add_message(std::move(message), place);
    return {};
  }

  Result<void> assistant(const JsonArray& blocks, const std::string& place) {
    std::string content;
    JsonArray calls;
    std::string reasoning;
    bool has_reasoning = false;
    for (size_t i = 0; i < blocks.size(); ++i) {
      const std::string here = item(place + ".content", i);
      BodyFields fields(blocks[i], here);
      const std::string type = fields.required_text("type");
      if (!calls.empty() && type != "tool_use") {
        fields.refuse("type", "nothing but tool_use after tool_use", quote(type));
      }
      if (type == "thinking") {
        reasoning += (has_reasoning ? kSeparator : "") + fields.required_text("thinking");
        has_reasoning = true;
        std::string signature;  // has no meaning here
        fields.text("signature", signature);
      } else if (type == "text") {
        content += (content.empty() ? "" : kSeparator) + fields.required_text("text");
      } else if (type == "tool_use") {
        calls.push_back(call(fields));
      } else {
        fields.refuse("type", "thinking, text or tool_use in an assistant's turn", quote(type));
      }
      FATHOM_RETURN_IF_ERROR(fields.done());
    }
    JsonObject message = {{"role", Json(std::string("assistant"))}};
    message.push_back({"content", Json(std::move(content))});
    if (has_reasoning) message.push_back({"reasoning_content", Json(std::move(reasoning))});
    if (!calls.empty()) message.push_back({"tool_calls", Json(std::move(calls))});
    translation_.add_message(std::move(message), place);
    return {};
  }

  Json call(BodyFields& fields) {
    const std::string id = fields.required_text("id");
    open_.insert(id);
    const Json* input = fields.find("input");
    if (input == nullptr) fields.refuse("input", "an object", input);
    JsonObject function = {
        {"name", Json(fields.required_text("name"))},
        {"arguments", Json(input == nullptr ? std::string() : json_text(*input))}};
    return Json(JsonObject{{"id", Json(id)},
                           {"type", Json(std::string("function"))},
                           {"function", Json(std::move(function))}});
  }

  Translation& translation_;
  std::set<std::string> open_;  // calls of the last message
};

}  // namespace

Result<void> translate_messages(BodyFields& fields, Translation* to) {
  if (const Json* system = fields.find("system")) {
    FATHOM_ASSIGN_OR_RETURN(Json content, plain_content(*system, false, "system"));
    to->add_message("system", std::move(content), "system");
  }
  const JsonArray* messages = fields.array("messages");
  if (messages == nullptr || messages->empty()) {
    fields.refuse("messages", "at least one message", messages == nullptr ? "nothing" : "none");
    return *fields.error();
  }
  MessagesReader reader(*to);
  for (size_t i = 0; i < messages->size(); ++i) {
    FATHOM_RETURN_IF_ERROR(reader.read((*messages)[i], item("messages", i)));
  }
  return {};
}

}  // namespace fathom
