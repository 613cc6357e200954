#pragma once

// Where a server of the Redis protocol is, as its URL says:
//   redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE]
// Percent signs escape bytes of user and password; an IPv6 address stands in brackets.

#include <string>

#include "base/result.h"

namespace fathom {

struct RedisAddress {
  std::string host;
  int port = 6379;
  std::string user;
  std::string password;
  int database = 0;

  // HOST:PORT/DATABASE, for messages: without user and password.
  std::string shown() const;
};

// The message does not repeat the URL, which may hold a password.
Result<RedisAddress> parse_redis_url(const std::string& url);

}  // namespace fathom
