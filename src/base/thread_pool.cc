#include "base/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "base/check.h"

namespace fathom {

// A loop is published under the mutex with a new generation number; workers that wake for it take
// ranges from an atomic counter. The caller waits until every worker has left the loop, so `body`
// may live on its stack.
struct ThreadPool::State {
  std::mutex mutex;
  std::condition_variable wake;
  std::condition_variable idle;
  uint64_t generation = 0;
  int n_running = 0;
  bool stopping = false;

  const std::function<void(int64_t, int64_t)>* body = nullptr;
  int64_t count = 0;
  int64_t chunk = 1;
  std::atomic<int64_t> next = 0;

  std::vector<std::thread> workers;

  void take_ranges() {
    while (true) {
      const int64_t begin = next.fetch_add(chunk, std::memory_order_relaxed);
      if (begin >= count) return;
      (*body)(begin, std::min(begin + chunk, count));
    }
  }

  void work() {
    uint64_t seen = 0;
    std::unique_lock lock(mutex);
    while (true) {
      wake.wait(lock, [&] { return stopping || generation != seen; });
      if (stopping) return;
      seen = generation;
      lock.unlock();
      take_ranges();
      lock.lock();
      if (--n_running == 0) idle.notify_one();
    }
  }
};

ThreadPool::ThreadPool(int n_threads) : state_(std::make_unique<State>()) {
  FATHOM_CHECK(n_threads >= 0);
  const int hardware = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const int n = n_threads == 0 ? hardware : n_threads;
  for (int i = 1; i < n; ++i) state_->workers.emplace_back([this] { state_->work(); });
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopping = true;
  }
  state_->wake.notify_all();
  for (std::thread& worker : state_->workers) worker.join();
}

int ThreadPool::n_threads() const { return static_cast<int>(state_->workers.size()) + 1; }

void ThreadPool::parallel_for(int64_t count, int64_t grain,
                              const std::function<void(int64_t, int64_t)>& body) {
  FATHOM_CHECK(grain > 0);
  if (count <= 0) return;
  const int64_t n = n_threads();
  if (n == 1 || count <= grain) {
    body(0, count);
    return;
  }
  // Four ranges a thread even out unequal cores without much traffic on the counter.
  const int64_t chunk = std::max(grain, (count + 4 * n - 1) / (4 * n));
  {
    const std::lock_guard lock(state_->mutex);
    state_->body = &body;
    state_->count = count;
    state_->chunk = chunk;
    state_->next.store(0, std::memory_order_relaxed);
    state_->n_running = static_cast<int>(state_->workers.size());
    ++state_->generation;
  }
  state_->wake.notify_all();
  state_->take_ranges();
  std::unique_lock lock(state_->mutex);
  state_->idle.wait(lock, [&] { return state_->n_running == 0; });
}

}  // namespace fathom
