// One call of the model: from its body to the engine and back.

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/clock.h"
#include "serve/connection.h"
#include "serve/routes.h"

namespace fathom {
namespace {

using Clock = std::chrono::steady_clock;

constexpr milliseconds kPollTime = milliseconds(1000);  // between two looks at a socket

int64_t now_us() { return static_cast<int64_t>(steady_seconds() * 1e6); }

// What the log says of a call that was taken in, after its status.
std::string call_text(const CallRecord& record, double now_s) {
  char text[160];
  std::snprintf(text, sizeof(text),
                " prompt=%lld cached=%lld replayed=%lld answered=%lld first_s=%.3f s=%.3f",
                static_cast<long long>(record.prompt_tokens),
                static_cast<long long>(record.usage.cached_tokens),
                static_cast<long long>(record.usage.replayed_tokens),
                static_cast<long long>(record.answered_tokens),
                record.first_s == 0 ? 0 : record.first_s - record.begun_s, now_s - record.begun_s);
  return text;
}

}  // namespace

Connection::Call::~Call() {
  if (submitted) {
    connection.loop_.forget(id);
    connection.loop_.cancel(id);
  }
  if (entered) connection.loop_.gate().quota(tenant).leave(charged_tokens, 0, now_us());
}

asio::awaitable<bool> Connection::call(HttpRequest& request, Protocol protocol,
                                       const Tenant& tenant, bool keep) {
  Call call(*this, tenant);
  const HttpReply refusal = co_await take_in(request, protocol, call);
  if (refusal.status != 200) {
    loop_.answered(request, refusal, tenant_text(tenant));
    co_return co_await write(refusal, keep);
  }
  id_ = request.id = call.job->id();
  // Looks out for the client's end while its answer is made. Once for an answer: a wait for the
  // socket beside that for each token costs more than the token. Where its next request has come
  // the socket is looked at with each token instead.
  call.polls = stream_.secure() || buffer_.size() > 0;
  if (buffer_.size() == 0) loop_.stir_when(tcp::socket::wait_read, stream_.socket(), call.id);
  ChatJob& job = *call.job;
  call.comment_at = Clock::now() + milliseconds(options_.keep_alive_ms);
  bool open = true;
  if (job.stream()) {
    const std::string head = stream_head(dialect_, id_) + event_chunks(job.reply().open());
    begun_ = true;
    open = co_await send(head, &call.waiting);
  }
  while (open && !job.ended()) open = co_await advance(call);
  boost::system::error_code ignored;
  stream_.socket().cancel(ignored);  // the look-out
  settle(request, call, open);
  if (!open) co_return false;
  keep = keep && (!call.half_closed || buffer_.size() > 0);
  if (job.stream()) co_return co_await stream_out(call, keep);
  const HttpReply reply = job.failure() ? error_reply(dialect_of(request.path),
                                                      call.waiting.cut ? 503 : 500, *job.failure())
                                        : HttpReply{.body = job.reply().whole()};
  co_return co_await write(reply, keep);
}

// The call's request is with the engine, or the reply says why not.
asio::awaitable<HttpReply> Connection::take_in(HttpRequest& request, Protocol protocol,
                                               Call& call) {
  const Tenant& tenant = call.tenant;
  const Dialect dialect = dialect_of(request.path);
  Quota& quota = loop_.gate().quota(tenant);
  call.waiting.record.begun_s = steady_seconds();
  if (const auto refusal = quota.enter(now_us())) co_return refused(dialect, *refusal, tenant);
  call.entered = true;
  Result<std::unique_ptr<ChatJob>> begun = exhausted("request: wanted a look at it, found none");
  co_await loop_.aside(request.body.size(), [&] {
    begun = loop_.service().begin(protocol, request.body);
    request.body = std::string();  // not held while the answer is made
  });
  drop_body();
  if (!begun) co_return refusal(dialect, begun.error(), false, 0);
  call.job = std::move(*begun);
  Request asked = call.job->take_request();
  const auto n_prompt = static_cast<int64_t>(asked.prompt.size());
  const int64_t n_most = n_prompt + asked.max_tokens * asked.n_choices;
  if (const auto refusal = quota.charge(n_most, now_us())) {
    co_return refused(dialect, *refusal, tenant);
  }
  call.charged_tokens = n_most;
  call.waiting.record.prompt_tokens = n_prompt;
  call.waiting.record.max_tokens = asked.max_tokens;
  call.waiting.record.n_choices = asked.n_choices;
  const Result<void> submitted = submit(std::move(asked), call);
  if (submitted) co_return HttpReply{};
  const bool draining = loop_.host().draining();
  if (submitted.error().code == ErrorCode::kExhausted) {
    loop_.metrics().refused(draining ? "drain" : "queue");
  }
  co_return refusal(dialect, submitted.error(), draining, loop_.host().retry_us(tenant.id));
}

HttpReply Connection::refused(Dialect dialect, const QuotaRefusal& refusal, const Tenant& tenant) {
  loop_.metrics().refused(refusal.limit);
  const int64_t retry_us =
      refusal.retry_us > 0 ? refusal.retry_us : loop_.host().retry_us(tenant.id);
  return fathom::refusal(dialect, exhausted(refusal.message), false, retry_us);
}

Result<void> Connection::submit(Request request, Call& call) {
  const Tenant& tenant = call.tenant;
  request.tenant = tenant.id;
  request.tenant_salt = loop_.gate().salt(tenant);
  request.tenant_weight = tenant.weight;
  request.priority = tenant.priority;
  FATHOM_ASSIGN_OR_RETURN(call.id, loop_.host().submit(std::move(request)));
  call.submitted = true;
  loop_.expect(call.id, call.waiting);
  return {};
}

// The call is over: its place, its quota, its figures, its line.
void Connection::settle(const HttpRequest& request, Call& call, bool open) {
  const Tenant& tenant = call.tenant;
  loop_.forget(call.id);
  if (!call.job->ended() || call.job->failure()) loop_.cancel(call.id);
  call.submitted = call.entered = false;
  const CallRecord& record = call.waiting.record;
  const double now_s = steady_seconds();
  loop_.gate().quota(tenant).leave(call.charged_tokens,
                                   record.prompt_tokens + record.answered_tokens, now_us());
  const bool failed = call.job->failure().has_value();
  // An answer whose stop text was found is ended as a cancelled one in the engine.
  const bool stopped = record.end == EndReason::kStop || record.end == EndReason::kCancelled;
  loop_.metrics().ended(record,
                        !open     ? "abort"
                        : failed  ? "error"
                        : stopped ? "stop"
                                  : "length",
                        now_s);
  loop_.answered(
      request,
      !open              ? 499
      : !failed          ? 200
      : call.waiting.cut ? 503
                         : 500,
      tenant_text(tenant) + call_text(record, now_s) + (failed ? ": " + *call.job->failure() : ""));
}

// The end of a stream.
asio::awaitable<bool> Connection::stream_out(Call& call, bool keep) {
  std::string end;
  ChatJob& job = *call.job;
  if (job.failure()) end = event_chunks({job.reply().fail(*job.failure())});
  const std::string done(job.reply().end_data());
  if (!done.empty()) end += event_chunks({{"", done}});
  end += last_chunk();
  const bool sent = co_await send(end);
  co_return sent&& keep;
}

// Whether the client is still there. One that ends its side may read on, and shows that by taking
// bytes that mean nothing: a comment of a stream, an interim response where there is none.
asio::awaitable<bool> Connection::look_out(Call& call) {
  if (call.half_closed) co_return !stream_.broken();
  if (!stream_.ended()) {
    call.polls = true;
    co_return true;
  }
  if (stream_.secure() || old_ || stream_.broken()) co_return false;
  call.half_closed = true;
  loop_.stir_when(tcp::socket::wait_error, stream_.socket(), call.id);
  const std::string probe =
      call.job->stream() ? comment_chunk("keep-alive") : "HTTP/1.1 102 Processing\r\n\r\n";
  co_return co_await send(probe, &call.waiting);
}

// Takes what is there, or waits for it; whether the client is still there and keeps up.
asio::awaitable<bool> Connection::advance(Call& call) {
  Waiting& waiting = call.waiting;
  ChatJob& job = *call.job;
  if (waiting.overrun) co_return false;
  if (waiting.cut) {
    job.lose("answer: wanted its end before the server goes down, found none");
    co_return true;
  }
  if (waiting.outputs.empty() && !waiting.stirred) {
    const auto look_at = Clock::now() + kPollTime;
    waiting.bell.expires_at(call.polls ? std::min(look_at, call.comment_at) : call.comment_at);
    co_await waiting.bell.async_wait(kAwait);
    const bool silent = call.comment_at <= Clock::now();
    if (silent) call.comment_at = Clock::now() + milliseconds(options_.keep_alive_ms);
    if (silent && waiting.outputs.empty() && job.stream() && !waiting.cut) {
      const std::string comment = comment_chunk("keep-alive");
      co_return co_await send(comment, &waiting);
    }
  }
  const bool looks = std::exchange(waiting.stirred, false) || call.polls;
  if (looks && !co_await look_out(call)) co_return false;
  std::string pieces;
  while (!waiting.outputs.empty()) {
    const bool was_said = job.said_all();
    pieces += event_chunks(job.take(waiting.outputs.front()));
    waiting.outputs.pop_front();
    if (job.said_all() && !was_said) loop_.host().cancel(call.id);
  }
  if (!job.stream() || pieces.empty()) co_return true;
  call.comment_at = Clock::now() + milliseconds(options_.keep_alive_ms);
  co_return co_await send(pieces, &waiting);
}

}  // namespace fathom
