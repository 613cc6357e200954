#pragma once

// What the routes answer without the engine, and the bytes of streams. No sockets.

#include "base/result.h"
#include "serve/chat_job.h"
#include "serve/http_message.h"

namespace fathom {

bool is_chat(const std::string& path);

HttpReply error_reply(int status, const std::string& message);

// Every route but a POST to chat.
HttpReply plain_reply(const HttpRequest& request, const ServiceOptions& served,
                      const std::string& version, bool draining);

// A call that was not taken in.
HttpReply refusal(const Error& error, bool draining, int64_t retry_us);

// The head of an answer that is a stream of events; its body comes in chunks.
std::string stream_head();
std::string comment_chunk(const std::string& text);
std::string event_chunk(const std::string& data);
std::string last_chunk();

}  // namespace fathom
