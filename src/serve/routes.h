#pragma once

// The routes of the server: which there are, what those answer that need no engine, errors in the
// form of each route's protocol, and the bytes of streams. No sockets.

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "serve/chat_service.h"
#include "serve/http_message.h"

namespace fathom {

// Whose error object a route answers with.
enum class Dialect : uint8_t { kOpenAi, kAnthropic };

// By the path alone, so that a request that could not be read gets its own protocol's error too.
Dialect dialect_of(const std::string& path);

HttpReply error_reply(Dialect dialect, int status, const std::string& message);

// The headers that carry the id of an answer; the second is Anthropic's.
inline constexpr char kIdHeader[] = "x-request-id";
inline constexpr char kAnthropicIdHeader[] = "request-id";

// Whether it is asked by what watches the process: without a key, and where no place is left.
bool is_probe(const std::string& path);

// The route that a path means: itself, but for "/" (the console) and for one slash too many at the
// end of a route.
std::string route_path(const std::string& path);

// The path where the server answers anything but 404, with NAME for a part of the caller's choice;
// empty: it answers 404.
std::string route_label(const std::string& path);
// 404, 405, or 307 to what route_path() says; nothing where the path is a route and the method its
// own.
std::optional<HttpReply> no_route(const HttpRequest& request);

// The protocol of a call that goes to the engine; nothing for any other route or method.
std::optional<Protocol> protocol_of(const HttpRequest& request);

// What a program is: its version, and from what it was built.
using BuildFacts = std::vector<std::pair<std::string, std::string>>;

// What needs neither the engine nor the server's state, and what is no route.
HttpReply plain_reply(const HttpRequest& request, const ChatService& service,
                      const BuildFacts& build, bool draining);

// A call that was not taken in.
HttpReply refusal(Dialect dialect, const Error& error, bool draining, int64_t retry_us);

// The head of an answer that is a stream of events; its body comes in chunks.
std::string stream_head(Dialect dialect, const std::string& id);
std::string comment_chunk(const std::string& text);
std::string event_chunks(const ReplyEvents& events);
std::string last_chunk();

}  // namespace fathom
