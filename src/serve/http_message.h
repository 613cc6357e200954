#pragma once

// A request and an answer without their transport.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace fathom {

struct HttpRequest {
  std::string method;
  std::string path;  // without the query
  std::string body;
  std::string key;  // Authorization: Bearer, else x-api-key; empty: none
  std::string if_none_match;
  std::string peer = {};  // address and port that it came from
  std::string id = {};    // its answer's, which the client is told
};

struct HttpReply {
  int status = 200;
  std::string body;
  std::string content_type = "application/json";
  std::string error = {};     // what was wrong, for the log
  std::string allow = {};     // with 405
  int64_t retry_after_s = 0;  // 0: no such header
  std::vector<std::pair<std::string, std::string>> headers = {};
};

}  // namespace fathom
