#pragma once

// EngineHost: the threads around an engine. One ticks it; one takes its outputs and hands them on.
// Thread rule: submit, cancel, status, ask and drain from any thread.

#include <functional>
#include <thread>
#include <vector>

#include "engine/engine.h"

namespace fathom {

class EngineHost {
 public:
  // Called on a thread of the host with outputs in order; must not wait for the engine.
  using Deliver = std::function<void(std::vector<Output> outputs)>;

  // The engine outlives the host and is used through it alone.
  EngineHost(Engine& engine, Deliver deliver);
  ~EngineHost();  // cancels nothing: waits until what was taken in has ended
  EngineHost(const EngineHost&) = delete;
  EngineHost& operator=(const EngineHost&) = delete;

  Result<RequestId> submit(Request request) { return engine_.submit(std::move(request)); }
  int64_t retry_us(TenantId tenant) const { return engine_.retry_us(tenant); }
  void cancel(RequestId id) { engine_.cancel(id); }
  uint64_t tag_of(const std::string& salt) const { return engine_.tag_of(salt); }
  EngineStatus status() const { return engine_.mailbox().status(); }
  // The answer is called on a thread of the host. kExhausted after drain().
  Result<void> ask(const CacheOrder& order, Mailbox::CacheAnswer answer) {
    return engine_.ask(order, std::move(answer));
  }
  // Takes nothing more; what is live is finished.
  void drain() { engine_.drain(); }
  bool draining() const { return engine_.mailbox().closed(); }

 private:
  Engine& engine_;
  Deliver deliver_;
  std::jthread delivering_;
  std::jthread ticking_;
};

}  // namespace fathom
