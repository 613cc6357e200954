#include "base/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"

namespace fathom {

namespace {

// A decode step has hundreds of loops of some microseconds with short gaps, which sleeping would
// more than double: workers look for the next loop about 30 microseconds before they sleep.
constexpr int kSpins = 1000;
// The end of a loop is near when its caller waits; after this it lets others have the core.
constexpr int kSpinsAtEnd = 2000;

void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

// A loop is published by a new generation number, and its gate opens: a worker may join while the
// gate is open. The caller closes the gate when no range is left and waits for those who joined, so
// `body` may live on its stack, and a worker that the system runs too late costs nothing.
struct ThreadPool::State {
  static constexpr uint64_t kOpen = uint64_t{1} << 63;

  std::atomic<uint64_t> generation = 0;
  std::atomic<uint64_t> gate = 0;  // kOpen, and the number of workers inside
  std::atomic<int> n_sleeping = 0;
  std::atomic<bool> stopping = false;

  // Written while the gate is closed and nobody is inside.
  const std::function<void(int64_t, int64_t)>* body = nullptr;
  int64_t count = 0;
  int64_t chunk = 1;
  std::atomic<int64_t> next = 0;

  std::mutex mutex;  // for sleeping, and for `raised`
  std::condition_variable wake;
  std::vector<std::thread> workers;
  std::atomic<bool> has_raised = false;
  std::exception_ptr raised;  // the first of this loop; read while nobody is inside

  // An exception that left a worker would end the program, and one that left the caller's share
  // would leave workers with a body that is gone.
  void take_ranges() {
    try {
      run_ranges();
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!has_raised.exchange(true)) raised = std::current_exception();
      next.store(count, std::memory_order_relaxed);
    }
  }

  void run_ranges() {
    while (true) {
      const int64_t begin = next.fetch_add(chunk, std::memory_order_relaxed);
      if (begin >= count) return;
      (*body)(begin, std::min(begin + chunk, count));
    }
  }

  bool join() {
    uint64_t seen = gate.load(std::memory_order_relaxed);
    while ((seen & kOpen) != 0) {
      if (gate.compare_exchange_weak(seen, seen + 1, std::memory_order_acquire)) return true;
    }
    return false;
  }
  void leave() { gate.fetch_sub(1, std::memory_order_release); }

  void open() {
    gate.store(kOpen, std::memory_order_release);
    generation.fetch_add(1);
    // A worker counts itself as sleeping before it looks at the generation for the last time, and
    // both orders are total: one of the two sees the other.
    if (n_sleeping.load() > 0) {
      const std::lock_guard lock(mutex);
      wake.notify_all();
    }
  }
  void close() {
    gate.fetch_and(~kOpen, std::memory_order_acquire);
    for (int spins = 0; gate.load(std::memory_order_acquire) != 0; ++spins) {
      if (spins < kSpinsAtEnd) {
        relax();
      } else {
        std::this_thread::yield();
      }
    }
  }

  bool changed(uint64_t seen) const { return stopping.load() || generation.load() != seen; }

  void wait(uint64_t seen) {
    for (int spins = 0; spins < kSpins; ++spins) {
      if (changed(seen)) return;
      relax();
    }
    std::unique_lock lock(mutex);
    ++n_sleeping;
    wake.wait(lock, [&] { return changed(seen); });
    --n_sleeping;
  }

  void work() {
    uint64_t seen = 0;
    while (true) {
      wait(seen);
      if (stopping.load()) return;
      seen = generation.load();
      if (!join()) continue;
      take_ranges();
      leave();
    }
  }
};

Result<ThreadPool> ThreadPool::make(int n_threads) {
  FATHOM_CHECK(n_threads >= 0);
  const int hardware = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const int n = n_threads == 0 ? hardware : n_threads;
  ThreadPool pool(std::make_unique<State>());
  State* state = pool.state_.get();
  for (int i = 1; i < n; ++i) {
    try {
      state->workers.emplace_back([state] { state->work(); });
    } catch (const std::system_error&) {
      if (n_threads == 0) break;
      return exhausted("threads: wanted " + std::to_string(n) + ", found room for " +
                       std::to_string(i));
    }
  }
  return pool;
}

ThreadPool::ThreadPool(int n_threads) : ThreadPool(std::move(make(n_threads).value())) {}
ThreadPool::ThreadPool(std::unique_ptr<State> state) : state_(std::move(state)) {}
ThreadPool::ThreadPool(ThreadPool&&) noexcept = default;

ThreadPool::~ThreadPool() {
  if (state_ == nullptr) return;
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
  state_->body = &body;
  state_->count = count;
  state_->chunk = chunk;
  state_->next.store(0, std::memory_order_relaxed);
  state_->open();
  state_->take_ranges();
  state_->close();
  if (state_->has_raised.load(std::memory_order_relaxed)) {
    state_->has_raised = false;
    std::rethrow_exception(std::exchange(state_->raised, nullptr));
  }
}

}  // namespace fathom
