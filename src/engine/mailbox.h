#pragma once

// Mailbox: the two bounded queues between the engine thread and everybody else.
//
// A request is live from submit() until its last output was put into the outbox; the number of live
// requests is bounded in all and for a tenant, and so are the outputs that nobody has taken.
// Thread rule: any thread.

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <set>

#include "base/result.h"
#include "engine/request.h"
#include "engine/status.h"

namespace fathom {

struct MailboxLimits {
  int64_t max_live = 256;
  int64_t max_live_of_tenant = 256;
  int64_t max_outputs = 1024;
};

inline constexpr int64_t kRetryUsMin = 1'000'000;
inline constexpr int64_t kRetryUsMax = 60'000'000;

class Mailbox {
 public:
  explicit Mailbox(const MailboxLimits& limits) : limits_(limits) {}

  // kExhausted where a bound is reached or close() was called: try again after retry_us.
  Result<RequestId> submit(Request request);
  // When a refused request of the tenant may find room: when the engine expects the first end of
  // what runs, else by the pace at which requests ended lately. kRetryUsMin to kRetryUsMax.
  int64_t retry_us(TenantId tenant) const;
  // A request that is not live is ignored.
  void cancel(RequestId id);
  // Called once on the engine thread, between two steps; must not wait.
  using CacheAnswer = std::function<void(const CacheReport& report)>;
  // kExhausted after close().
  Result<void> ask(const CacheOrder& order, CacheAnswer answer);
  // As of the last tick.
  EngineStatus status() const;
  // Nothing is taken in any more.
  void close();

  // Outputs in order, at most `n`; waits up to timeout_us for the first.
  std::vector<Output> take_outputs(size_t n, int64_t timeout_us = 0);

  // The engine's side.
  struct Arrived {
    RequestId id = {};
    Request request;
  };
  struct Asked {
    CacheOrder order;
    CacheAnswer answer;
  };
  struct Inbox {
    std::vector<Arrived> arrived;
    std::set<RequestId> cancelled;
    std::vector<Asked> asked;
  };
  // Waits up to timeout_us for anything.
  Inbox take_inbox(int64_t timeout_us = 0);
  int64_t room() const;     // outputs that may be put
  void put(Output output);  // there must be room
  void tell(const EngineStatus& status);
  // Its last output was put.
  void finished(RequestId id, TenantId tenant, int64_t now_us);

  const MailboxLimits& limits() const { return limits_; }
  int64_t n_live() const;
  int64_t n_outputs() const;
  bool closed() const;
  // Closed, and nothing is left for the engine to do.
  bool done() const;

 private:
  const MailboxLimits limits_;
  mutable std::mutex mutex_;
  std::condition_variable to_engine_;
  std::condition_variable from_engine_;
  // Guarded by mutex_.
  uint64_t last_id_ = 0;
  bool closed_ = false;
  Inbox inbox_;
  EngineStatus status_;
  std::set<RequestId> live_;
  std::map<TenantId, int64_t> live_of_tenant_;
  std::deque<Output> outputs_;
  int64_t last_end_us_ = -1;
  double pace_us_ = 0;  // between two ends while something was live, on average; 0: not known
};

}  // namespace fathom
