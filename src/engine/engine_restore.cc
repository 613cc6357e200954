// What goes to the tiers behind the pool, and what comes back from them.

#include <algorithm>
#include <limits>
#include <utility>

#include "engine/engine.h"

namespace fathom {
namespace {

constexpr int64_t kWaitUsMax = 1000;  // for a tier, while requests may come

}  // namespace

TierBlock Engine::tier_block(const EngineTask& task, int64_t index) const {
  const std::span<const BlockKey> keys = task.keys.keys();
  const auto at = static_cast<size_t>(index);
  const BlockCost& cost = options_.block_cost;
  return {.key = keys[at],
          .parent = at == 0 ? task.live->root : keys[at - 1],
          .first_position = index * kBlockTokens,
          .tenant_tag = tenant_tag(task.live->root),
          .grade = task.keys.grade(index),
          .cost = cost.first + cost.slope * static_cast<double>(index)};
}

// Reads the last n_added of the published blocks as they are now: they may be evicted before the
// next step.
void Engine::offer(const EngineTask& task, int64_t n_added) {
  if (tiers_.empty()) return;
  const int64_t n_shared = task.lease.n_shared();
  for (int64_t i = n_shared - n_added; i < n_shared; ++i) {
    offered_.emplace_back(tier_block(task, i),
                          read_block(executor_, task.lease.blocks[static_cast<size_t>(i)]));
  }
}

void Engine::put_offered() {
  if (offered_.empty()) return;
  copies_failed_ = copies_failed_ || !executor_.memory().sync();
  for (const auto& [block, payload] : offered_) {
    if (!copies_failed_) tiers_.put(block, payload, tiers_.n_tiers());
  }
  offered_.clear();
}

// Who reads the block already.
std::optional<RestoreId> Engine::restore_of(const BlockKey& key) const {
  for (const auto& [id, task_id] : restoring_) {
    const EngineTask& task = *tasks_.at(task_id);
    if (task.keys.keys()[static_cast<size_t>(task.lease.n_shared())] == key) return id;
  }
  return std::nullopt;
}

// Whether the task waits for blocks of its path that the cache lacks and a tier has. They come into
// own blocks of its lease, out of what admission has reserved for it; where another task reads the
// first of them already, it waits for what that one gets.
bool Engine::begin_restore(EngineTask& task, int64_t now_us, int64_t deadline_us) {
  if (tiers_.empty() || !task.asks_tiers) return false;
  const int64_t n_there = task.lease.n_shared();
  const auto rest = [&] { return task.keys.keys().subspan(static_cast<size_t>(n_there)); };
  int64_t n_more = tiers_.count(rest());
  const bool may_branch = task.live->request.restore == RestoreGrade::kBounded &&
                          !task.keys.is_branched_below(task.keys.n_blocks());
  if (may_branch && follow_branch(task, n_there + n_more, true)) n_more = tiers_.count(rest());
  if (n_more == 0) return false;
  task.phase = TaskPhase::kRestoring;
  task.since_us = now_us;
  if (const auto other = restore_of(rest().front())) {
    task.restore = {.id = *other, .follows = true, .deadline_us = deadline_us};
    return true;
  }
  const Result<void> grown = cache_.grow(task.lease, n_there + n_more);
  FATHOM_CHECK(grown.has_value());
  task.restore = {.id = tiers_.begin(rest().first(static_cast<size_t>(n_more))),
                  .n_asked = n_more,
                  .n_copied = n_more,
                  .deadline_us = deadline_us};
  restoring_.emplace(task.restore->id, task.id);
  ++counters_.n_restores;
  return true;
}

void Engine::poll_tiers(int64_t now_us, int64_t wait_us) {
  if (tiers_.empty()) return;
  const bool idle = std::ranges::none_of(
      tasks_, [](const auto& entry) { return entry.second->phase == TaskPhase::kRunning; });
  take_blocks(idle && !restoring_.empty() ? std::min(wait_us, kWaitUsMax) : 0);
  std::vector<TaskId> ended;
  for (const auto& [id, task_id] : restoring_) {
    const bool late = now_us >= tasks_.at(task_id)->restore->deadline_us;
    if (late || tiers_.progress(id).done) ended.push_back(task_id);
  }
  for (const TaskId id : ended) end_restore(*tasks_.at(id), now_us);
  ended.clear();
  for (const auto& [id, task] : tasks_) {
    if (!task->restore || !task->restore->follows) continue;
    const bool late = now_us >= task->restore->deadline_us;
    if (late || restoring_.count(task->restore->id) == 0) ended.push_back(id);
  }
  for (const TaskId id : ended) end_follower(*tasks_.at(id), now_us);
}

// What the other one got is cached now; what it did not get may still be there.
void Engine::end_follower(EngineTask& task, int64_t now_us) {
  const int64_t deadline_us = task.restore->deadline_us;
  give_up_restore(task);
  counters_.restore_us += now_us - task.since_us;
  if (now_us >= deadline_us) task.asks_tiers = false;
  cache_.release(task.lease);
  match_prefix(task);
  if (!begin_restore(task, now_us, deadline_us)) run_when_all_is_there(task, now_us);
}

// Into the pool, and into tiers that are faster than the one that it came from.
void Engine::take_blocks(int64_t wait_us) {
  std::vector<std::pair<TaskRestore*, int64_t>> taken;
  tiers_.poll(wait_us, [&](const RestoredBlock& block) {
    EngineTask& task = *tasks_.at(restoring_.at(block.restore));
    const int64_t index = task.lease.n_shared() + block.index;
    write_block(executor_, task.lease.blocks[static_cast<size_t>(index)], block.bytes);
    taken.emplace_back(&*task.restore, block.index);
    if (block.tier > 0) tiers_.put(tier_block(task, index), block.bytes, block.tier);
  });
  if (taken.empty() || executor_.memory().sync()) return;
  copies_failed_ = true;
  for (const auto& [restore, index] : taken) restore->n_copied = std::min(restore->n_copied, index);
}

// The longest run that came becomes part of the cache, and the task starts as after any other hit.
void Engine::end_restore(EngineTask& task, int64_t now_us) {
  const TaskRestore restore = *task.restore;
  const RestoreProgress progress = tiers_.progress(restore.id);
  const int64_t n_come = std::min(progress.n_ready, restore.n_copied);
  give_up_restore(task);
  counters_.restore_us += now_us - task.since_us;
  counters_.restored_tokens += n_come * kBlockTokens;
  if (!task.started) task.usage.restored_tokens += n_come * kBlockTokens;
  if (n_come < restore.n_asked) {
    task.asks_tiers = false;
    ++counters_.n_cut_restores;
    if (!progress.done) ++counters_.n_late_restores;
  }
  const int64_t n_blocks = task.lease.n_shared() + n_come;
  cache_.cut(task.lease, n_blocks);
  cache_.publish(task.lease, task.keys.keys().first(static_cast<size_t>(n_blocks)));
  // A branch that did not come is none: what is computed now goes on from the exact path.
  if (!task.keys.is_branched_below(n_blocks)) {
    const Request& request = task.live->request;
    const auto n = static_cast<size_t>(task.keys.n_blocks() * kBlockTokens);
    task.keys.reset();
    task.keys.extend(std::span(request.prompt).first(n), request.images);
  }
  run_when_all_is_there(task, now_us);
}

void Engine::run_when_all_is_there(EngineTask& task, int64_t now_us) {
  if (!task.restore && !task.fetch) run(task, now_us);
}

void Engine::give_up_restore(EngineTask& task) {
  if (!task.restore->follows) {
    tiers_.end(task.restore->id);
    restoring_.erase(task.restore->id);
  }
  task.restore.reset();
}

}  // namespace fathom
