#include "serve/responses_input.h"

#include <set>
#include <utility>

#include "serve/body_fields.h"
#include "text/quote.h"

namespace fathom {
namespace {

constexpr const char* kBlockSeparator = "\n\n";
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

// The blocks of an assistant's message as one text.
Result<std::string> text_of(const Json& content, const std::string& place) {
  if (content.as_string() != nullptr) return *content.as_string();
  std::string text;
  const char* separator = "";
  for (const Json& part : *content.as_array()) {
    const Json* piece = part.find("text");
    if (piece == nullptr) {
      return invalid(place + ": wanted text in an assistant's message, found an image");
    }
    text += separator + *piece->as_string();
    separator = kBlockSeparator;
  }
  return text;
}

class InputReader {
 public:
  explicit InputReader(Translation* to) : to_(to) {}

  Result<void> read(const Json& item, const std::string& place) {
    BodyFields fields(item, place);
    std::string type = "message";
    fields.text("type", type);
    const Json* given = item.find("type");
    if (given == nullptr && item.find("role") == nullptr) {
      fields.refuse("type", "a type or a role", "neither");
    }
    if (given != nullptr && given->is_null()) fields.refuse("type", "a string", "null");
    FATHOM_RETURN_IF_ERROR(fields.done());
    if (type == "message") return message(fields, place);
    if (type == "reasoning") return reasoning(fields, place);
    if (type == "function_call" || type == "custom_tool_call") return call(fields, type, place);
    if (type == "function_call_output" || type == "custom_tool_call_output") {
      return output(fields, place);
    }
    return {};
  }

  // Writes the turn that is open, unless nothing is in it.
  void close() {
    const Turn turn = std::exchange(turn_, {});
    if (!turn.has_message && turn.reasoning.empty() && turn.calls.empty()) return;
    JsonObject message = {{"role", Json(std::string("assistant"))},
                          {"content", Json(turn.content)},
                          {"reasoning_content", Json(turn.reasoning)}};
    if (!turn.calls.empty()) message.push_back({"tool_calls", Json(turn.calls)});
    to_->add_message(std::move(message), turn.place);
  }

 private:
  struct Turn {
    std::string place;
    std::string reasoning;
    bool has_message = false;
    std::string content;
    JsonArray calls;
  };

  Turn& turn(const std::string& place) {
    if (turn_.place.empty()) turn_.place = place;
    return turn_;
  }

  Result<void> message(BodyFields& fields, const std::string& place) {
    std::string role = fields.required_text("role");
    if (role != "user" && role != "assistant" && role != "system" && role != "developer") {
      fields.refuse("role", "one of user, assistant, system, developer", quote(role));
    }
    FATHOM_RETURN_IF_ERROR(fields.done());
    FATHOM_ASSIGN_OR_RETURN(Json content, content_of(fields.find("content"), place + ".content"));
    if (role == "assistant") {
      FATHOM_ASSIGN_OR_RETURN(const std::string text, text_of(content, place + ".content"));
      if (!turn_.calls.empty()) close();
      Turn& open = turn(place);
      open.has_message = true;
      open.content += (open.content.empty() || text.empty() ? "" : kBlockSeparator) + text;
      return {};
    }
    close();
    to_->add_message(role == "developer" ? "system" : role.c_str(), std::move(content), place);
    return {};
  }

  Result<void> reasoning(BodyFields& fields, const std::string& place) {
    std::string text;
    const JsonArray* parts = fields.array("content");
    for (size_t i = 0; parts != nullptr && i < parts->size(); ++i) {
      BodyFields part((*parts)[i], item_place(place + ".content", i));
      text += (i == 0 ? "" : "\n") + part.required_text("text");
      fields.keep(part.done());
    }
    if (!turn_.calls.empty() || (!text.empty() && !turn_.content.empty())) close();
    if (!text.empty()) {
      std::string& all = turn(place).reasoning;
      all += (all.empty() ? "" : "\n") + text;
    }
    return fields.done();
  }

  Result<void> call(BodyFields& fields, const std::string& type, const std::string& place) {
    const bool custom = type == "custom_tool_call";
    const std::string id = fields.required_text("call_id");
    if (!ids_.insert(id).second) fields.refuse("call_id", "each id once", quote(id) + " again");
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
  Turn turn_;
  std::set<std::string> ids_;  // of all calls
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
