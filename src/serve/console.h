#pragma once

// The console: a chat page and a live view of the server's state, in the browser.
//
//   GET /console          the page                    GET /console/NAME  its other files
//   GET /console/state    what the page shows, JSON; asks for a key as /metrics does
//
// The files hold nothing of the server and ask for no key. They load nothing from elsewhere.

#include "engine/mailbox.h"
#include "serve/http_message.h"
#include "serve/metrics.h"

namespace fathom {

inline constexpr char kConsoleState[] = "/console/state";

// Whether it is the page or one of its files.
bool is_console_file(const std::string& path);

// One of them; 304 where the client has these bytes already.
HttpReply console_file_reply(const HttpRequest& request);

// What the server knows beside its engine and its metrics.
struct ServerView {
  std::string model;
  std::string version;
  bool draining = false;
  double uptime_s = 0;
  int64_t n_connections = 0;
  int64_t n_live = 0;
  int64_t n_outputs = 0;
  MailboxLimits limits;
};

// JSON of /console/state.
std::string console_state(const EngineStatus& engine, const ServerMetrics& metrics,
                          const ServerView& server);

}  // namespace fathom
