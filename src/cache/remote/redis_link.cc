#include "cache/remote/redis_link.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/clock.h"

namespace fathom {
namespace {

constexpr size_t kShownMax = 100;

int64_t now_us() { return static_cast<int64_t>(steady_seconds() * 1e6); }

// No list is ever asked for, and one of a billion elements would be allocated before they come.
void* no_list(const redisReadTask* /*task*/, int /*n*/) { return nullptr; }

// Of what the other end says, for a line.
std::string shown(std::string_view text) {
  std::string line(text.substr(0, kShownMax));
  std::ranges::replace_if(
      line, [](char c) { return c < ' ' || c > '~'; }, '?');
  return line;
}

}  // namespace

void ignore_broken_pipes() {
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGPIPE);
  FATHOM_CHECK(::pthread_sigmask(SIG_BLOCK, &signals, nullptr) == 0);
}

RedisLink::RedisLink(RedisAddress address, int64_t max_answer_bytes)
    : address_(std::move(address)), max_answer_bytes_(max_answer_bytes) {}

Result<std::vector<RedisReply>> RedisLink::run(std::span<const RedisCommand> commands,
                                               int64_t timeout_us) {
  const int64_t end_us = now_us() + timeout_us;
  if (context_ == nullptr) FATHOM_RETURN_IF_ERROR(connect(end_us));
  Result<std::vector<RedisReply>> replies = exchange(commands, end_us);
  if (!replies) context_.reset();  // answers that still come would be taken for those of the next
  return replies;
}

Result<void> RedisLink::connect(int64_t end_us) {
  ++n_connects_;
  Context context(::redisConnectNonBlock(address_.host.c_str(), address_.port));
  if (context == nullptr) return exhausted(address_.shown() + ": no memory for a connection");
  context_ = std::move(context);
  const auto open = [&]() -> Result<void> {
    if (context_->err != 0) return failure();
    functions_ = *context_->reader->fn;
    functions_.createArray = no_list;
    context_->reader->fn = &functions_;
    FATHOM_RETURN_IF_ERROR(wait(POLLOUT, end_us));
    int error = 0;
    socklen_t size = sizeof(error);
    ::getsockopt(context_->fd, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return io_error(address_.shown() + ": cannot connect: " + strerror(error));
    std::vector<RedisCommand> hello;
    if (!address_.password.empty() && !address_.user.empty()) {
      hello.push_back({"AUTH", address_.user, address_.password});
    } else if (!address_.password.empty()) {
      hello.push_back({"AUTH", address_.password});
    }
    const std::string database = std::to_string(address_.database);
    if (address_.database != 0) hello.push_back({"SELECT", database});
    if (hello.empty()) return {};
    const auto replies = exchange(hello, end_us);
    return replies ? Result<void>() : replies.error();
  };
  Result<void> opened = open();
  if (!opened) context_.reset();
  return opened;
}

Result<std::vector<RedisReply>> RedisLink::exchange(std::span<const RedisCommand> commands,
                                                    int64_t end_us) {
  for (const RedisCommand& command : commands) {
    std::vector<const char*> parts;
    std::vector<size_t> sizes;
    for (const std::string_view part : command) {
      parts.push_back(part.data());
      sizes.push_back(part.size());
    }
    const int appended = ::redisAppendCommandArgv(context_.get(), static_cast<int>(parts.size()),
                                                  parts.data(), sizes.data());
    if (appended != REDIS_OK) return failure();
  }
  FATHOM_RETURN_IF_ERROR(send(end_us));
  std::vector<RedisReply> replies;
  int64_t n_read = 0;
  for (size_t i = 0; i < commands.size(); ++i) {
    FATHOM_ASSIGN_OR_RETURN(RedisReply reply, receive(end_us, n_read));
    replies.push_back(std::move(reply));
  }
  if (context_->reader->pos < context_->reader->len) {
    return invalid(address_.shown() + ": wanted " + std::to_string(commands.size()) +
                   " answers, found more");
  }
  return replies;
}

Result<void> RedisLink::send(int64_t end_us) {
  int done = 0;
  while (done == 0) {
    FATHOM_RETURN_IF_ERROR(wait(POLLOUT, end_us));
    if (::redisBufferWrite(context_.get(), &done) != REDIS_OK) return failure();
  }
  return {};
}

Result<RedisReply> RedisLink::receive(int64_t end_us, int64_t& n_read) {
  const redisReader& reader = *context_->reader;
  void* object = nullptr;
  while (true) {
    if (::redisGetReplyFromReader(context_.get(), &object) != REDIS_OK) return failure();
    if (object != nullptr) break;
    FATHOM_RETURN_IF_ERROR(wait(POLLIN, end_us));
    const auto before = static_cast<int64_t>(reader.len);
    if (::redisBufferRead(context_.get()) != REDIS_OK) return failure();
    n_read += static_cast<int64_t>(reader.len) - before;
    if (n_read > max_answer_bytes_) {
      return invalid(address_.shown() + ": wanted an answer of at most " +
                     std::to_string(max_answer_bytes_) + " bytes, found more");
    }
  }
  const std::unique_ptr<redisReply, Free> reply(static_cast<redisReply*>(object));
  const std::string_view text(reply->str == nullptr ? "" : reply->str, reply->len);
  switch (reply->type) {
    case REDIS_REPLY_NIL:
      return RedisReply{.is_nil = true};
    case REDIS_REPLY_INTEGER:
      return RedisReply{.number = reply->integer};
    case REDIS_REPLY_STRING:
    case REDIS_REPLY_STATUS:
      return RedisReply{.bytes = std::string(text)};
    default:
      return invalid(address_.shown() + ": wanted an answer, found " + shown(text));
  }
}

Result<void> RedisLink::wait(short events, int64_t end_us) {
  while (true) {
    const int64_t left_us = end_us - now_us();
    if (left_us <= 0) return exhausted(address_.shown() + ": no whole answer in time");
    pollfd polled = {.fd = context_->fd, .events = events};
    const int n = ::poll(&polled, 1, static_cast<int>((left_us + 999) / 1000));
    if (n > 0) return {};
    if (n < 0 && errno != EINTR) return io_error(address_.shown() + ": " + strerror(errno));
  }
}

Error RedisLink::failure() const {
  const std::string line = address_.shown() + ": " + shown(context_->errstr);
  const bool is_protocol = context_->err == REDIS_ERR_PROTOCOL || context_->err == REDIS_ERR_OOM;
  return is_protocol ? invalid(line) : io_error(line);
}

}  // namespace fathom
