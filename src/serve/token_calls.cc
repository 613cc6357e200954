#include "serve/token_calls.h"

#include "serve/json_shapes.h"
#include "serve/messages_call.h"
#include "text/json_output.h"

namespace fathom {
namespace {

namespace json = boost::json;

Result<std::vector<TokenId>> ids_of(const ChatService& service, const Json& body,
                                    BodyFields& fields) {
  if (fields.find("messages") != nullptr) {
    bool generation = true;
    fields.flag("add_generation_prompt", generation);
    const int effort = read_default_effort(fields, service.options().effort);
    FATHOM_RETURN_IF_ERROR(fields.done());
    FATHOM_ASSIGN_OR_RETURN(const ChatRequest request,
                            parse_chat_request(body, {.effort = effort}));
    return service.prompt_ids(request, service.counted("messages"), generation);
  }
  bool special = true;
  fields.flag("add_special_tokens", special);
  const std::string text = fields.required_text("prompt");
  FATHOM_RETURN_IF_ERROR(fields.done());
  return service.text_ids(text, special, service.counted("prompt"));
}

Result<void> check_model(const ChatService& service, BodyFields& fields) {
  std::string model;
  fields.text("model", model);
  FATHOM_RETURN_IF_ERROR(fields.done());
  return service.check_model(model);
}

}  // namespace

Result<std::string> count_tokens(const ChatService& service, std::string_view body) {
  FATHOM_ASSIGN_OR_RETURN(const ChatCall call, parse_messages_call(body, service.options().effort));
  FATHOM_RETURN_IF_ERROR(service.check_model(call.model));
  FATHOM_ASSIGN_OR_RETURN(const std::vector<TokenId> ids,
                          service.prompt_ids(call.request, service.counted("messages")));
  return json_output(json::object{{"input_tokens", ids.size()}});
}

Result<std::string> tokenize(const ChatService& service, std::string_view body) {
  FATHOM_ASSIGN_OR_RETURN(const Json parsed, parse_body(body));
  BodyFields fields(parsed);
  FATHOM_RETURN_IF_ERROR(check_model(service, fields));
  bool strings = false;
  fields.flag("return_token_strs", strings);
  FATHOM_ASSIGN_OR_RETURN(const std::vector<TokenId> ids, ids_of(service, parsed, fields));
  json::value shown;
  if (strings) {
    json::array texts;
    for (const TokenId id : ids) {
      texts.emplace_back(token_text(service.loaded().tokenizer->token_bytes(id)));
    }
    shown = std::move(texts);
  }
  return json_output(json::object{{"count", ids.size()},
                                  {"max_model_len", service.options().context},
                                  {"tokens", json::value_from(ids)},
                                  {"token_strs", std::move(shown)}});
}

Result<std::string> detokenize(const ChatService& service, std::string_view body) {
  FATHOM_ASSIGN_OR_RETURN(const Json parsed, parse_body(body));
  BodyFields fields(parsed);
  FATHOM_RETURN_IF_ERROR(check_model(service, fields));
  const JsonArray* tokens = fields.array("tokens");
  if (tokens == nullptr) fields.refuse("tokens", "an array of token ids", "nothing");
  FATHOM_RETURN_IF_ERROR(fields.done());
  const auto n_max = static_cast<size_t>(service.counted("tokens").n_max);
  if (tokens->size() > n_max) {
    return invalid("tokens: wanted at most " + std::to_string(n_max) + " ids, found " +
                   std::to_string(tokens->size()));
  }
  FATHOM_ASSIGN_OR_RETURN(const std::vector<TokenId> ids, read_ids(*tokens, "tokens"));
  const Result<std::string> text = service.loaded().tokenizer->decode(ids);
  if (!text) return invalid("tokens: " + text.error().message);
  return json_output(json::object{{"prompt", *text}});
}

}  // namespace fathom
