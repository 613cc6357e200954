#pragma once

// A request and an answer without their transport.

#include <cstdint>
#include <string>

namespace fathom {

struct HttpRequest {
  std::string method;
  std::string path;  // without the query
  std::string body;
};

struct HttpReply {
  int status = 200;
  std::string body;
  std::string allow;          // with 405
  int64_t retry_after_s = 0;  // 0: no such header
};

}  // namespace fathom
