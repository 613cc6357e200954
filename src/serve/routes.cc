#include "serve/routes.h"

#include <boost/json.hpp>
#include <cstdio>

namespace fathom {
namespace {

namespace json = boost::json;

std::string framed(const std::string& data) {
  char size[20];
  std::snprintf(size, sizeof(size), "%zx\r\n", data.size());
  return size + data + "\r\n";
}

std::string models_body(const ServiceOptions& served) {
  const json::object model = {{"id", served.model_name},
                              {"object", "model"},
                              {"owned_by", "fathom"},
                              {"context_length", served.context}};
  return json::serialize(json::object{{"object", "list"}, {"data", json::array{model}}});
}

HttpReply wrong_method(const HttpRequest& request, const char* wanted) {
  HttpReply reply =
      error_reply(405, request.path + ": wanted " + wanted + ", found " + request.method);
  reply.allow = wanted;
  return reply;
}

}  // namespace

bool is_chat(const std::string& path) {
  return path == "/v1/chat/completions" || path == "/chat/completions";
}

HttpReply error_reply(int status, const std::string& message) {
  return {.status = status, .body = error_body(status, message)};
}

HttpReply plain_reply(const HttpRequest& request, const ServiceOptions& served,
                      const std::string& version, bool draining) {
  const std::string& path = request.path;
  const bool models = path == "/v1/models" || path == "/models";
  if (is_chat(path)) return wrong_method(request, "POST");
  if (!models && path != "/health" && path != "/ready" && path != "/version") {
    return error_reply(404, "path: wanted a route of this server, found " + path);
  }
  if (request.method != "GET") return wrong_method(request, "GET");
  if (models) return {.body = models_body(served)};
  if (path == "/version") return {.body = json::serialize(json::object{{"version", version}})};
  if (path == "/health") return {.body = R"({"status":"ok"})"};
  if (draining) return error_reply(503, "ready: the server is going down");
  return {.body = R"({"status":"ready"})"};
}

HttpReply refusal(const Error& error, bool draining, int64_t retry_us) {
  if (error.code != ErrorCode::kExhausted) return error_reply(400, error.message);
  HttpReply reply = error_reply(draining ? 503 : 429, error.message);
  reply.retry_after_s = (retry_us + 999'999) / 1'000'000;
  return reply;
}

std::string stream_head() {
  return "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n"
         "Transfer-Encoding: chunked\r\n\r\n";
}

std::string comment_chunk(const std::string& text) { return framed(": " + text + "\n\n"); }
std::string event_chunk(const std::string& data) { return framed("data: " + data + "\n\n"); }
std::string last_chunk() { return "0\r\n\r\n"; }

}  // namespace fathom
