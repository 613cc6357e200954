#pragma once

// A fixed set of threads that runs one loop at a time, split into contiguous ranges.
//
// The split never decides a result: callers split by output rows only (docs/design.md, section 7).
// Thread rule: parallel_for is called from one thread at a time and is not re-entrant.

#include <cstdint>
#include <functional>
#include <memory>

#include "base/result.h"

namespace fathom {

class ThreadPool {
 public:
  // n_threads counts the caller, which works too. kExhausted where the system does not give as
  // many. 0: one for each hardware thread, or as many as the system gives.
  static Result<ThreadPool> make(int n_threads);

  // The same where running out of threads is a bug; never with 0.
  explicit ThreadPool(int n_threads);
  ThreadPool(ThreadPool&&) noexcept;
  ~ThreadPool();

  int n_threads() const;

  // Calls body(begin, end) for ranges that cover [0, count), each at least grain long where count
  // allows, and returns when all are done. Ranges are handed out dynamically. What the standard
  // library raises in one of them, for want of memory, comes out of here, with other ranges undone.
  void parallel_for(int64_t count, int64_t grain,
                    const std::function<void(int64_t begin, int64_t end)>& body);

 private:
  struct State;
  explicit ThreadPool(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;  // null once moved from
};

}  // namespace fathom
