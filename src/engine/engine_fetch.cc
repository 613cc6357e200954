// States that other processes have left: asked for at admission, while blocks come from tiers.

#include <algorithm>

#include "engine/engine.h"

namespace fathom {
namespace {

constexpr int64_t kWaitUsMax = 1000;  // while requests may come

}  // namespace

// Whether the task waits for a state of another process, which then stands where its own are. Asked
// once, so that it waits no longer than the bound in all; not where a state of this process leaves
// no row to run again.
bool Engine::begin_fetch(EngineTask& task, int64_t now_us) {
  if (options_.states == nullptr || !task.asks_states) return false;
  if (task.live->request.prompt_logprobs || sessions_.limits().max_bytes == 0) return false;
  const auto n_here = static_cast<size_t>(task.lease.n_shared());
  int64_t n_blocks = task.lease.n_shared();
  if (task.restore) n_blocks += tiers_.count(task.keys.keys().subspan(n_here));
  if (n_blocks == 0) return false;
  SessionQuery query = session_query(task, n_blocks);
  if (const auto own = sessions_.find(query)) {
    if (own->n_tokens >= n_blocks * kBlockTokens) return false;
    query.min_tokens = own->n_tokens + 1;
  }
  task.asks_states = false;
  const auto ticket = options_.states->find(states_wanted(query));
  if (!ticket) return false;
  task.fetch = {.ticket = *ticket, .deadline_us = now_us + options_.states_us_max};
  task.phase = TaskPhase::kRestoring;
  task.since_us = now_us;
  fetching_.emplace(*ticket, task.id);
  ++counters_.n_fetches;
  return true;
}

void Engine::poll_states(int64_t now_us, int64_t wait_us) {
  if (fetching_.empty()) return;
  const bool idle = restoring_.empty() && std::ranges::none_of(tasks_, [](const auto& entry) {
                      return entry.second->phase == TaskPhase::kRunning;
                    });
  std::vector<TaskId> ended;
  for (FoundState& found : options_.states->poll(idle ? std::min(wait_us, kWaitUsMax) : 0)) {
    EngineTask& task = *tasks_.at(fetching_.at(found.ticket));
    ended.push_back(task.id);
    if (found.state) take_state(task, found);
  }
  for (const auto& [ticket, task_id] : fetching_) {
    const bool late = now_us >= tasks_.at(task_id)->fetch->deadline_us;
    if (!late || std::ranges::find(ended, task_id) != ended.end()) continue;
    ended.push_back(task_id);
    ++counters_.n_late_fetches;
  }
  for (const TaskId id : ended) {
    EngineTask& task = *tasks_.at(id);
    counters_.fetch_us += now_us - task.since_us;
    give_up_fetch(task);
    run_when_all_is_there(task, now_us);
  }
}

// Among this process's own, where the task finds it when its blocks are there.
void Engine::take_state(EngineTask& task, FoundState& found) {
  const StateLabel& label = found.label;
  if (sessions_.touch(label.name, now_us_)) return;
  const int64_t begin = label.n_tokens / kBlockTokens * kBlockTokens;
  const SessionPlace place = {
      .parent = label.name.parent,
      .grade = label.grade,
      .n_tokens = label.n_tokens,
      .partial_ids =
          std::span(task.live->request.prompt)
              .subspan(static_cast<size_t>(begin), static_cast<size_t>(label.n_tokens - begin)),
      .images = task.live->request.images,
      .owner = static_cast<uint64_t>(task.live->request.tenant)};
  FATHOM_CHECK(session_name(place) == label.name);
  ++counters_.n_fetched_states;
  sessions_.keep(place, std::move(*found.state), now_us_);
}

void Engine::give_up_fetch(EngineTask& task) {
  options_.states->cancel(task.fetch->ticket);
  fetching_.erase(task.fetch->ticket);
  task.fetch.reset();
}

}  // namespace fathom
