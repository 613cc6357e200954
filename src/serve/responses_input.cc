#include "serve/responses_input.h"

#include <optional>

#include "serve/body_fields.h"
#include "text/quote.h"

namespace fathom {
namespace {

constexpr const char* kUnreadFile = "[Unsupported Document]";

std::string item_place(const std::string& list, size_t i) {
  return list + "[" + std::to_string(i) + "]";
}

Result<Json> part_of(const Json& value, const std::string& place) {
  BodyFields fields(value, place);
  const std::string type = fields.required_text("type");
  if (type == "input_file") return text_part(kUnreadFile);
  if (type == "input_image") {
    std::string url = fields.required_text("image_url");
    FATHOM_RETURN_IF_ERROR(fields.done());
    return image_part(std::move(url), fields.find("detail"));
  }
  if (type != "input_text" && type != "output_text") {
    fields.refuse("type", "one of input_text, output_text, input_image, input_file", quote(type));
  }
  std::string text = fields.required_text("text");
  FATHOM_RETURN_IF_ERROR(fields.done());
  return text_part(std::move(text));
}

Result<Json> content_of(const Json* value, const std::string& place) {
  if (value != nullptr && value->as_string() != nullptr) return *value;
  if (value == nullptr || value->as_array() == nullptr) {
    return invalid(place + ": wanted a string or an array, found " +
                   (value == nullptr ? "nothing" : value->kind_name()));
  }
  JsonArray parts;
  for (size_t i = 0; i < value->as_array()->size(); ++i) {
    FATHOM_ASSIGN_OR_RETURN(Json part, part_of((*value->as_array())[i], item_place(place, i)));
    parts.push_back(std::move(part));
  }
  return Json(std::move(parts));
}

class InputReader {
 public:
  explicit InputReader(Translation* to) : to_(to) {}

  Result<void> read(const Json& item, const std::string& place) {
    BodyFields fields(item, place);
    std::string type = "message";
    fields.text("type", type);
    if (item.find("type") == nullptr && item.find("role") == nullptr) {
      fields.refuse("type", "a type or a role", "neither");
    }
    FATHOM_RETURN_IF_ERROR(fields.done());
    if (type == "message") return message(fields, place);
    if (type == "reasoning") return reasoning(fields, place);
    if (type == "function_call" || type == "custom_tool_call") return call(fields, type, place);
    if (type == "function_call_output" || type == "custom_tool_call_output") {
      return output(fields, place);
    }
    return {};
  }

  // Writes the turn that is open.
  void close() {
    if (!turn_) return;
    JsonObject message = {{"role", Json(std::string("assistant"))}};
    if (turn_->content) {
      message.push_back({"content", std::move(*turn_->content)});
    } else if (turn_->calls.empty()) {
      message.push_back({"content", Json(std::string())});
    }
    if (turn_->reasoning) {
      message.push_back({"reasoning_content", Json(std::move(*turn_->reasoning))});
    }
    if (!turn_->calls.empty()) message.push_back({"tool_calls", Json(std::move(turn_->calls))});
    to_->add_message(std::move(message), turn_->place);
    turn_.reset();
  }

 private:
  struct Turn {
    std::string place;
    std::optional<std::string> reasoning;
    std::optional<Json> content;
    JsonArray calls;
  };

  // A turn of the assistant that can still take reasoning or a message.
  Turn& early_turn(const std::string& place) {
    if (turn_ && (turn_->content || !turn_->calls.empty())) close();
    return turn(place);
  }

  Turn& turn(const std::string& place) {
    if (!turn_) turn_ = Turn{.place = place, .reasoning = {}, .content = {}, .calls = {}};
    return *turn_;
  }

  Result<void> message(BodyFields& fields, const std::string& place) {
    std::string role = fields.required_text("role");
    if (role != "user" && role != "assistant" && role != "system" && role != "developer") {
      fields.refuse("role", "one of user, assistant, system, developer", quote(role));
    }
    FATHOM_RETURN_IF_ERROR(fields.done());
    FATHOM_ASSIGN_OR_RETURN(Json content, content_of(fields.find("content"), place + ".content"));
    if (role == "assistant") {
      early_turn(place).content = std::move(content);
      return {};
    }
    close();
    to_->add_message(role == "developer" ? "system" : role.c_str(), std::move(content), place);
    return {};
  }

  Result<void> reasoning(BodyFields& fields, const std::string& place) {
    std::optional<std::string>& reasoning = early_turn(place).reasoning;
    if (!reasoning) reasoning.emplace();
    const JsonArray* parts = fields.array("content");
    for (size_t i = 0; parts != nullptr && i < parts->size(); ++i) {
      BodyFields part((*parts)[i], item_place(place + ".content", i));
      const std::string text = part.required_text("text");
      fields.keep(part.done());
      *reasoning += (reasoning->empty() ? "" : "\n") + text;
    }
    return fields.done();
  }

  Result<void> call(BodyFields& fields, const std::string& type, const std::string& place) {
    const bool custom = type == "custom_tool_call";
    const std::string id = fields.required_text("call_id");
    std::string name = fields.required_text("name");
    std::string space;
    fields.text("namespace", space);
    if (!space.empty()) name = space + "::" + name;
    std::string arguments = fields.required_text(custom ? "input" : "arguments");
    FATHOM_RETURN_IF_ERROR(fields.done());
    if (custom) arguments = json_text(Json(JsonObject{{"input", Json(std::move(arguments))}}));
    JsonObject function = {{"name", Json(std::move(name))},
                           {"arguments", Json(std::move(arguments))}};
    turn(place).calls.emplace_back(JsonObject{{"id", Json(id)},
                                              {"type", Json(std::string("function"))},
                                              {"function", Json(std::move(function))}});
    return {};
  }

  Result<void> output(BodyFields& fields, const std::string& place) {
    close();
    const std::string id = fields.required_text("call_id");
    FATHOM_RETURN_IF_ERROR(fields.done());
    FATHOM_ASSIGN_OR_RETURN(Json content, content_of(fields.find("output"), place + ".output"));
    to_->add_message(JsonObject{{"role", Json(std::string("tool"))},
                                {"tool_call_id", Json(id)},
                                {"content", std::move(content)}},
                     place);
    return {};
  }

  Translation* to_;
  std::optional<Turn> turn_;
};

}  // namespace

Result<void> translate_input(const std::string& instructions, const Json* input, Translation* to) {
  if (!instructions.empty()) to->add_message("system", Json(instructions), "instructions");
  if (input == nullptr) {
    if (!instructions.empty()) return {};
    return invalid("input: wanted it or instructions, found neither");
  }
  if (input->as_string() != nullptr) {
    to->add_message("user", *input, "input");
    return {};
  }
  if (input->as_array() == nullptr) {
    return invalid(std::string("input: wanted a string or an array, found ") + input->kind_name());
  }
  InputReader reader(to);
  for (size_t i = 0; i < input->as_array()->size(); ++i) {
    FATHOM_RETURN_IF_ERROR(reader.read((*input->as_array())[i], item_place("input", i)));
  }
  reader.close();
  if (input->as_array()->empty() || to->n_messages() == 0) {
    return invalid("input: wanted at least one message, found none");
  }
  return {};
}

}  // namespace fathom
