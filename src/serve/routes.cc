#include "serve/routes.h"

#include <array>
#include <boost/json.hpp>
#include <cstdio>
#include <ctime>
#include <functional>
#include <string_view>

#include "serve/chat_reply.h"
#include "serve/console.h"
#include "serve/messages_reply.h"
#include "serve/token_calls.h"
#include "text/json_output.h"
#include "text/quote.h"

namespace fathom {
namespace {

namespace json = boost::json;

// What a plain route answers from.
struct PlainCall {
  const HttpRequest& request;
  const ChatService& service;
  const BuildFacts& build;
  bool draining = false;
};
// What stands before the name of a model; empty: another path.
std::string_view model_prefix(std::string_view path) {
  for (const std::string_view prefix : {"/v1/models/", "/models/", "/anthropic/v1/models/"}) {
    if (path.starts_with(prefix) && path.size() > prefix.size()) return prefix;
  }
  return "";
}

using PlainAnswer = HttpReply (*)(const PlainCall& call);

enum class Place : uint8_t {
  kHere,    // answered by a function
  kServer,  // answered from the figures and the state of the server
  kEngine,  // a call of the model
};

struct Route {
  std::string_view path;
  std::string_view method;
  PlainAnswer answer = nullptr;
  Place place = Place::kHere;
  Protocol protocol = Protocol::kChat;  // of a call of the model
};

HttpReply health(const PlainCall& /*call*/) { return {.body = R"({"status":"ok"})"}; }

HttpReply ready(const PlainCall& call) {
  if (!call.draining) return {.body = R"({"status":"ready"})"};
  return error_reply(Dialect::kOpenAi, 503, "ready: the server is going down");
}

HttpReply version(const PlainCall& call) {
  json::object facts;
  for (const auto& [name, value] : call.build) facts[name] = value;
  return {.body = json_output(facts)};
}

std::string rfc3339(int64_t seconds) {
  const auto at = static_cast<std::time_t>(seconds);
  std::tm utc = {};
  gmtime_r(&at, &utc);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

// In the form of OpenAI and in that of Anthropic at once.
json::object model_json(const ChatService& service) {
  const ServiceOptions& served = service.options();
  return {{"id", served.model_name},           {"object", "model"},
          {"created", service.created_s()},    {"owned_by", "fathom"},
          {"context_length", served.context},  {"type", "model"},
          {"display_name", served.model_name}, {"created_at", rfc3339(service.created_s())}};
}

HttpReply models(const PlainCall& call) {
  const json::object model = model_json(call.service);
  return {.body = json_output(json::object{{"object", "list"},
                                           {"data", json::array{model}},
                                           {"has_more", false},
                                           {"first_id", model.at("id")},
                                           {"last_id", model.at("id")}})};
}

HttpReply model(const PlainCall& call) {
  const std::string& path = call.request.path;
  const std::string name = path.substr(model_prefix(path).size());
  const Result<void> known = call.service.check_model(name);
  if (!known) return refusal(dialect_of(path), known.error(), call.draining, 0);
  return {.body = json_output(model_json(call.service))};
}

HttpReply tokens(const PlainCall& call,
                 Result<std::string> (*answer)(const ChatService&, std::string_view)) {
  const Result<std::string> body = answer(call.service, call.request.body);
  if (body) return {.body = *body};
  return refusal(dialect_of(call.request.path), body.error(), call.draining, 0);
}
HttpReply count(const PlainCall& call) { return tokens(call, count_tokens); }
HttpReply encode(const PlainCall& call) { return tokens(call, tokenize); }
HttpReply decode(const PlainCall& call) { return tokens(call, detokenize); }

HttpReply console_file(const PlainCall& call) { return console_file_reply(call.request); }

constexpr Route kConsoleFile = {"", "GET", console_file};
constexpr Route kModel = {"/v1/models/NAME", "GET", model};
constexpr auto kRoutes = std::to_array<Route>({
    {"/health", "GET", health},
    {"/ready", "GET", ready},
    {"/version", "GET", version},
    {"/v1/models", "GET", models},
    {"/models", "GET", models},
    {"/anthropic/v1/models", "GET", models},
    {"/v1/chat/completions", "POST", nullptr, Place::kEngine, Protocol::kChat},
    {"/chat/completions", "POST", nullptr, Place::kEngine, Protocol::kChat},
    {"/beta/chat/completions", "POST", nullptr, Place::kEngine, Protocol::kChat},
    {"/v1/completions", "POST", nullptr, Place::kEngine, Protocol::kCompletions},
    {"/completions", "POST", nullptr, Place::kEngine, Protocol::kCompletions},
    {"/beta/completions", "POST", nullptr, Place::kEngine, Protocol::kCompletions},
    {"/v1/responses", "POST", nullptr, Place::kEngine, Protocol::kResponses},
    {"/responses", "POST", nullptr, Place::kEngine, Protocol::kResponses},
    {"/v1/messages", "POST", nullptr, Place::kEngine, Protocol::kMessages},
    {"/anthropic/v1/messages", "POST", nullptr, Place::kEngine, Protocol::kMessages},
    {"/anthropic/messages", "POST", nullptr, Place::kEngine, Protocol::kMessages},
    {"/v1/messages/count_tokens", "POST", count},
    {"/anthropic/v1/messages/count_tokens", "POST", count},
    {"/anthropic/messages/count_tokens", "POST", count},
    {"/tokenize", "POST", encode},
    {"/detokenize", "POST", decode},
    {"/metrics", "GET", nullptr, Place::kServer},
    {kConsoleState, "GET", nullptr, Place::kServer},
    {"/admin/cache", "GET", nullptr, Place::kServer},
    {"/admin/cache/clear", "POST", nullptr, Place::kServer},
});

const Route* find_route(const std::string& path) {
  for (const Route& route : kRoutes) {
    if (route.path == path) return &route;
  }
  if (!model_prefix(path).empty()) return &kModel;
  return is_console_file(path) ? &kConsoleFile : nullptr;
}

std::string framed(const std::string& data) {
  char size[20];
  std::snprintf(size, sizeof(size), "%zx\r\n", data.size());
  return size + data + "\r\n";
}

}  // namespace

Dialect dialect_of(const std::string& path) {
  const bool anthropic = path.starts_with("/anthropic/") || path.starts_with("/v1/messages");
  return anthropic ? Dialect::kAnthropic : Dialect::kOpenAi;
}

HttpReply error_reply(Dialect dialect, int status, const std::string& message) {
  return {.status = status,
          .body = dialect == Dialect::kAnthropic ? messages_error_body(status, message)
                                                 : error_body(status, message),
          .error = message};
}

bool is_probe(const std::string& path) { return path == "/health" || path == "/ready"; }

std::string route_path(const std::string& path) {
  if (path == "/") return "/console";
  if (!path.ends_with('/')) return path;
  const std::string shorter = path.substr(0, path.size() - 1);
  return find_route(path) == nullptr && find_route(shorter) != nullptr ? shorter : path;
}

std::string route_label(const std::string& path) {
  const Route* route = find_route(path);
  if (route == nullptr) return "";
  return route->path.empty() ? path : std::string(route->path);
}

std::optional<HttpReply> no_route(const HttpRequest& request) {
  const Dialect dialect = dialect_of(request.path);
  const Route* route = find_route(request.path);
  if (std::string meant = route_path(request.path); meant != request.path) {
    HttpReply reply = {.status = 307, .content_type = "text/plain"};
    reply.headers = {{"Location", std::move(meant)}};
    return reply;
  }
  if (route == nullptr) {
    return error_reply(dialect, 404,
                       "path: wanted a route of this server, found " + quote(request.path));
  }
  const bool looks = request.method == "HEAD" && route->method == "GET";  // written without a body
  if (looks || route->method == request.method) return std::nullopt;
  const std::string wanted(route->method);
  HttpReply reply = error_reply(
      dialect, 405, request.path + ": wanted " + wanted + ", found " + quote(request.method));
  reply.allow = wanted;
  return reply;
}

std::optional<Protocol> protocol_of(const HttpRequest& request) {
  const Route* route = find_route(request.path);
  if (route == nullptr || route->place != Place::kEngine || route->method != request.method) {
    return std::nullopt;
  }
  return route->protocol;
}

HttpReply plain_reply(const HttpRequest& request, const ChatService& service,
                      const BuildFacts& build, bool draining) {
  if (std::optional<HttpReply> none = no_route(request)) return *none;
  const Route* route = find_route(request.path);
  FATHOM_CHECK(route->place == Place::kHere);
  return route->answer(
      {.request = request, .service = service, .build = build, .draining = draining});
}

HttpReply refusal(Dialect dialect, const Error& error, bool draining, int64_t retry_us) {
  if (error.code == ErrorCode::kNotFound) return error_reply(dialect, 404, error.message);
  if (error.code != ErrorCode::kExhausted) return error_reply(dialect, 400, error.message);
  HttpReply reply = error_reply(dialect, draining ? 503 : 429, error.message);
  reply.retry_after_s = (retry_us + 999'999) / 1'000'000;
  return reply;
}

std::string stream_head(Dialect dialect, const std::string& id) {
  std::string head =
      "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n"
      "Transfer-Encoding: chunked\r\n";
  head += std::string(kIdHeader) + ": " + id + "\r\n";
  if (dialect == Dialect::kAnthropic) head += std::string(kAnthropicIdHeader) + ": " + id + "\r\n";
  return head + "\r\n";
}

std::string comment_chunk(const std::string& text) { return framed(": " + text + "\n\n"); }

std::string event_chunks(const ReplyEvents& events) {
  std::string chunks;
  for (const ReplyEvent& event : events) {
    const std::string name = event.name.empty() ? "" : "event: " + event.name + "\n";
    chunks += framed(name + "data: " + event.data + "\n\n");
  }
  return chunks;
}

std::string last_chunk() { return "0\r\n\r\n"; }

}  // namespace fathom
