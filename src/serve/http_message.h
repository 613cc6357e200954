#pragma once

// A request and an answer without their transport.

#include <cstdint>
#include <string>

namespace fathom {

struct HttpRequest {
  std::string method;
  std::string path;  // without the query
  std::string body;
  std::string key;  // Authorization: Bearer, else x-api-key; empty: none
};

struct HttpReply {
  int status = 200;
  std::string body;
  std::string content_type = "application/json";
  std::string allow;          // with 405
  int64_t retry_after_s = 0;  // 0: no such header
};

}  // namespace fathom
