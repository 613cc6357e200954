#include "engine/engine.h"

namespace fathom {

EngineLoad Engine::load() const {
  EngineLoad load = {.n_live = static_cast<int64_t>(live_.size())};
  for (const auto& [id, task] : tasks_) {
    load.n_waiting += task->phase == TaskPhase::kWaiting ? 1 : 0;
    load.n_parked += task->phase == TaskPhase::kParked ? 1 : 0;
    load.n_running += task->phase == TaskPhase::kRunning ? 1 : 0;
  }
  load.n_slots = limits_.n_sequences - executor_.windows().n_free();
  load.n_pinned_blocks = executor_.blocks().n_blocks() - cache_.available();
  load.n_sessions = sessions_.n_entries();
  load.session_bytes = sessions_.bytes();
  return load;
}

EngineStatus Engine::status() const {
  return {.counters = counters_,
          .load = load(),
          .prefix = cache_.counters(),
          .n_blocks = executor_.blocks().n_blocks(),
          .n_idle_blocks = cache_.n_idle()};
}

CacheReport Engine::carry_out(const CacheOrder& order) {
  CacheReport report;
  if (order.clear) {
    std::optional<uint64_t> owner;
    if (order.tenant) owner = static_cast<uint64_t>(*order.tenant);
    report.n_cleared = cache_.clear(owner);
  }
  report.status = status();
  for (const auto& [owner, n] : cache_.nodes_by_owner()) {
    report.cached_blocks.emplace(static_cast<TenantId>(owner), n);
  }
  return report;
}

}  // namespace fathom
