#include "serve/engine_host.h"

#include "base/clock.h"

namespace fathom {
namespace {

constexpr int64_t kWaitUs = 100'000;
constexpr size_t kOutputsAtOnce = 64;

}  // namespace

EngineHost::EngineHost(Engine& engine, Deliver deliver)
    : engine_(engine), deliver_(std::move(deliver)) {
  ticking_ = std::jthread([this] {
    const auto now_us = [] { return static_cast<int64_t>(steady_seconds() * 1e6); };
    while (engine_.tick(now_us(), kWaitUs) || !engine_.mailbox().done()) {
    }
  });
  delivering_ = std::jthread([this](const std::stop_token& stop) {
    while (true) {
      // Looked at first: what was put before the stop is still taken.
      const bool last = stop.stop_requested();
      std::vector<Output> outputs = engine_.take_outputs(kOutputsAtOnce, last ? 0 : kWaitUs);
      if (outputs.empty() && last) return;
      if (!outputs.empty()) deliver_(std::move(outputs));
    }
  });
}

EngineHost::~EngineHost() {
  drain();
  ticking_.join();
  delivering_.request_stop();
}

}  // namespace fathom
