#include <algorithm>
#include <map>

#include "engine/engine.h"

namespace fathom {

EngineLoad Engine::load() const {
  EngineLoad load = {.n_live = static_cast<int64_t>(live_.size())};
  for (const auto& [id, task] : tasks_) count_into(load, *task);
  load.n_running = load.n_replaying + load.n_prefilling + load.n_decoding;
  load.next_end_us = next_end_us();
  load.n_slots = limits_.n_sequences - executor_.windows().n_free();
  load.n_pinned_blocks = executor_.blocks().n_blocks() - cache_.available();
  load.n_sessions = sessions_.n_entries();
  load.session_bytes = sessions_.bytes();
  return load;
}

// A step gives each that decodes a token.
int64_t Engine::next_end_us() const {
  std::map<const LiveRequest*, double> steps;  // until its last choice ends
  for (const auto& [id, task] : tasks_) {
    if (task->phase != TaskPhase::kRunning) continue;
    const auto n_left =
        static_cast<double>(answer_tokens_max(*task)) - static_cast<double>(task->answer.size());
    const auto n_rows = static_cast<double>(task->sequence.pending());
    double& most = steps[task->live];
    most = std::max(most,
                    answered_share_ * n_left + n_rows / static_cast<double>(scheduler_.max_rows));
  }
  double least = 0;
  for (const auto& [live, n] : steps) least = least == 0 ? n : std::min(least, n);
  return static_cast<int64_t>(least * step_us_);
}

void Engine::count_into(EngineLoad& load, const EngineTask& task) const {
  const Sequence& sequence = task.sequence;
  load.tail_bytes += sequence.tail.bytes();
  load.parked_bytes += static_cast<int64_t>(task.windows.size());
  if (task.phase == TaskPhase::kParked) {
    ++load.n_parked;
  } else if (task.phase == TaskPhase::kRestoring) {
    ++load.n_restoring;
  } else if (task.phase == TaskPhase::kWaiting) {
    ++load.n_waiting;
    const int64_t wait_us = now_us_ - task.live->arrival_us;
    if (!task.started) load.wait_us_max = std::max(load.wait_us_max, wait_us);
  } else if (sequence.length < sequence.entries_end) {
    ++load.n_replaying;
  } else if (sequence.pending() > 1 || task.answer.empty()) {
    ++load.n_prefilling;
  } else {
    ++load.n_decoding;
  }
}

EngineStatus Engine::status() const {
  std::vector<TierReport> tiers;
  for (const EngineTier& one : options_.tiers) tiers.push_back({one.name, one.tier->counters()});
  return {.now_us = now_us_,
          .counters = counters_,
          .load = load(),
          .prefix = cache_.counters(),
          .n_blocks = executor_.blocks().n_blocks(),
          .n_idle_blocks = cache_.n_idle(),
          .block_bytes = executor_.blocks().block_bytes(),
          .n_slots = limits_.n_sequences,
          .slot_bytes = executor_.windows().slot_bytes(),
          .session_bytes_max = sessions_.limits().max_bytes,
          .tiers = std::move(tiers),
          .restores = tiers_.counters(),
          .states = options_.states == nullptr ? std::nullopt
                                               : std::optional(options_.states->counters())};
}

uint64_t Engine::tag_of(const std::string& salt) const {
  KeyRoot root = options_.key_root;
  root.tenant_salt = salt;
  return tenant_tag(root_key(root));
}

CacheReport Engine::carry_out(const CacheOrder& order) {
  CacheReport report;
  if (order.clear) {
    std::optional<uint64_t> owner;
    if (order.tenant) owner = static_cast<uint64_t>(*order.tenant);
    report.n_cleared = cache_.clear(owner);
    report.n_states_cleared = sessions_.clear(owner);
  }
  report.status = status();
  for (const auto& [owner, n] : cache_.nodes_by_owner()) {
    report.cached_blocks.emplace(static_cast<TenantId>(owner), n);
  }
  return report;
}

}  // namespace fathom
