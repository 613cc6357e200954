#pragma once

// A fixed set of threads that runs one loop at a time, split into contiguous ranges.
//
// The split never decides a result: callers split by output rows only (docs/design.md, section 7).
// Thread rule: parallel_for is called from one thread at a time and is not re-entrant.

#include <cstdint>
#include <functional>
#include <memory>

namespace fathom {

class ThreadPool {
 public:
  // n_threads counts the caller, which works too; 0 means one for each hardware thread.
  explicit ThreadPool(int n_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int n_threads() const;

  // Calls body(begin, end) for ranges that cover [0, count), each at least grain long where count
  // allows, and returns when all are done. Ranges are handed out dynamically.
  void parallel_for(int64_t count, int64_t grain,
                    const std::function<void(int64_t begin, int64_t end)>& body);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fathom
