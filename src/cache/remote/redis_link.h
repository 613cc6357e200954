#pragma once

// RedisLink: one connection to a server of the Redis protocol, made where there is none, and
// commands whose answers come within a time, whatever the other end does: says nothing, says it one
// byte at a time, says what is no answer, or more than was asked for.
//
// Thread rule: one thread, which has called ignore_broken_pipes().

#include <hiredis/hiredis.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cache/remote/redis_address.h"

namespace fathom {

using RedisCommand = std::vector<std::string_view>;

struct RedisReply {
  bool is_nil = false;
  int64_t number = 0;  // of an answer that is one
  std::string bytes;   // else
};

class RedisLink {
 public:
  // Answers to the commands of one run() have at most max_answer_bytes together.
  RedisLink(RedisAddress address, int64_t max_answer_bytes);

  // Sends the commands together; their answers, in order. On failure the connection is given up:
  //   kExhausted: no whole answer within timeout_us;
  //   kIo: no connection, or it ended;
  //   kInvalid: an answer that is none of the protocol's, an error, a list, or too long.
  Result<std::vector<RedisReply>> run(std::span<const RedisCommand> commands, int64_t timeout_us);

  // That were tried. Any thread.
  int64_t n_connects() const { return n_connects_; }

 private:
  struct Free {
    void operator()(redisContext* context) const { ::redisFree(context); }
    void operator()(redisReply* reply) const { ::freeReplyObject(reply); }
  };
  using Context = std::unique_ptr<redisContext, Free>;

  Result<void> connect(int64_t end_us);
  Result<std::vector<RedisReply>> exchange(std::span<const RedisCommand> commands, int64_t end_us);
  Result<void> send(int64_t end_us);
  Result<RedisReply> receive(int64_t end_us, int64_t& n_read);
  Result<void> wait(short events, int64_t end_us);
  Error failure() const;

  const RedisAddress address_;
  const int64_t max_answer_bytes_;
  redisReplyObjectFunctions functions_ = {};
  Context context_;
  std::atomic<int64_t> n_connects_ = 0;
};

// A write to a connection that the other end has closed then fails, and does not end the program.
void ignore_broken_pipes();

}  // namespace fathom
