// Who holds slots and blocks: admission, pre-emption, and what a task gives back.

#include <algorithm>
#include <utility>

#include "engine/engine.h"

namespace fathom {

void Engine::admit(int64_t now_us) {
  const AdmissionPlan plan = plan_admission(view(now_us), scheduler_);
  for (const TaskId id : plan.admit) {
    EngineTask& task = *tasks_.at(id);
    if (task.phase == TaskPhase::kParked) {
      resume(task, now_us);
    } else {
      start(task, now_us);
    }
  }
  if (plan.park) park(*tasks_.at(*plan.park));
  if (plan.drop) drop(*tasks_.at(*plan.drop));
}

SchedulerState Engine::view(int64_t now_us) {
  SchedulerState state = {.now_us = now_us,
                          .n_free_slots = executor_.windows().n_free(),
                          .n_free_blocks = cache_.available(),
                          .row_us = row_us_};
  std::map<TenantId, size_t> places;
  for (const auto& [id, tenant] : tenants_) {
    places[id] = state.tenants.size();
    state.tenants.push_back({.weight = tenant.weight, .served = tenant.served});
  }
  for (const auto& [id, task] : tasks_) {
    state.tasks.push_back(view_of(*task));
    state.tasks.back().tenant = places.at(task->live->request.tenant);
    if (task->phase == TaskPhase::kWaiting) continue;
    state.n_free_blocks -= needed_blocks(*task);
    if (task->phase == TaskPhase::kRunning) state.n_free_slots -= task->n_forks;
    if (task->phase == TaskPhase::kRestoring) state.n_free_slots -= 1 + task->n_forks;
  }
  FATHOM_CHECK(state.n_free_blocks >= 0 && state.n_free_slots >= 0);
  view_heads(state);
  return state;
}

TaskView Engine::view_of(EngineTask& task) {
  TaskView view = {.id = task.id,
                   .priority = task.live->request.priority,
                   .arrival_us = task.live->arrival_us,
                   .phase = task.phase,
                   .n_slots = 1 + task.n_forks,
                   .since_us = task.since_us,
                   .last_step = task.last_step,
                   .suspect = task.suspect};
  if (task.phase == TaskPhase::kWaiting) view.n_blocks = needed_blocks(task);
  if (task.phase != TaskPhase::kRunning) return view;
  feed(task);
  const Sequence& sequence = task.sequence;
  const bool reader_waits = static_cast<int64_t>(task.unsent.size()) >= options_.max_unsent;
  view.pending_rows = reader_waits ? 0 : sequence.pending();
  // A step ends where the prompt is kept.
  const int64_t point = prompt_point(task);
  if (sequence.length < point) {
    view.pending_rows = std::min(view.pending_rows, point - sequence.length);
  }
  view.unseen_rows = sequence.length - sequence.decoder_length;
  view.whole = is_whole(task);
  view.decoding = sequence.pending() == 1 && !task.answer.empty();
  return view;
}

// What the cache holds lowers the need of a waiting task. Looked up for the first one of each
// tenant alone: the others are looked at when they are first.
void Engine::view_heads(SchedulerState& state) {
  std::map<size_t, TaskView*> heads;
  for (TaskView& task : state.tasks) {
    if (task.phase != TaskPhase::kWaiting) continue;
    TaskView*& head = heads[task.tenant];
    const auto key = [&](const TaskView& t) {
      return std::pair(virtual_arrival(t, scheduler_), t.id);
    };
    if (head == nullptr || key(task) < key(*head)) head = &task;
  }
  for (const auto& [tenant, head] : heads) {
    const PrefixCache::Hit hit = peek(*tasks_.at(head->id));
    head->n_blocks -= hit.n_blocks - hit.n_idle;
  }
}

PrefixCache::Hit Engine::peek(EngineTask& task) {
  if (task.peek_epoch == cache_.epoch()) return task.peeked;
  find_prefix(task);
  task.peeked = cache_.peek(task.keys.keys());
  task.peek_epoch = cache_.epoch();
  return task.peeked;
}

// Sets the keys to the path that is to be matched: full blocks of the prompt, at least one token of
// it left to compute. A bounded request goes on where bounded state branches off the exact path.
// None where the decoder has to see the whole prompt: what is cached holds nothing of it.
void Engine::find_prefix(EngineTask& task) {
  const Request& request = task.live->request;
  const std::span<const int32_t> prompt(request.prompt);
  const int64_t n_blocks = (task.live->prompt_tokens() - 1) / kBlockTokens;
  task.keys.reset();
  if (request.prompt_logprobs) return;
  task.keys.extend(prompt.first(static_cast<size_t>(n_blocks * kBlockTokens)), request.images);
  if (request.restore == RestoreGrade::kExact) return;
  follow_branch(task, cache_.peek(task.keys.keys()).n_blocks, false);
}

// Where bounded state branches off the exact path behind n_exact blocks, the keys become those of
// the branch, as many as they were. Whether they did.
bool Engine::follow_branch(EngineTask& task, int64_t n_exact, bool in_tiers) {
  const int64_t n_blocks = task.keys.n_blocks();
  if (n_exact == n_blocks) return false;
  const Request& request = task.live->request;
  const std::span<const int32_t> prompt(request.prompt);
  const auto first = [&](int64_t n) { return prompt.first(static_cast<size_t>(n * kBlockTokens)); };
  KeyChain branch = task.keys;
  branch.branch(n_exact);
  branch.extend(first(n_exact + 1), request.images);
  const BlockKey& key = branch.keys().back();
  if (!(in_tiers ? tiers_.count({&key, 1}) == 1 : cache_.contains(key))) return false;
  branch.extend(first(n_blocks), request.images);
  task.keys = std::move(branch);
  return true;
}

void Engine::match_prefix(EngineTask& task) {
  find_prefix(task);
  task.lease = cache_.match(task.keys.keys());
  task.lease.owner = static_cast<uint64_t>(task.live->request.tenant);
}

void Engine::start(EngineTask& task, int64_t now_us) {
  const Request& request = task.live->request;
  if (!task.started) task.usage.queued_us = now_us - task.live->arrival_us;
  if (task.live->grammar != nullptr && !task.started) {
    const Result<void> begun = task.form.begin(task.live->grammar->matcher, request.stop_ids);
    if (!begun) return finish(task, EndReason::kError, begun.error().message);
  }
  match_prefix(task);
  begin_restore(task, now_us, now_us + options_.restore_us_max);
  begin_fetch(task, now_us);
  run_when_all_is_there(task, now_us);
}

// From the blocks of its lease, all of which are cached.
void Engine::run(EngineTask& task, int64_t now_us) {
  const Request& request = task.live->request;
  Result<Sequence> opened = executor_.open();
  if (!opened) return finish(task, EndReason::kError, opened.error().message);
  task.sequence = std::move(*opened);
  task.phase = TaskPhase::kRunning;
  task.since_us = now_us;
  task.last_step = counters_.n_steps;
  auto n_hit = static_cast<size_t>(task.lease.n_blocks() * kBlockTokens);
  const std::span<const int32_t> prompt(request.prompt);
  task.exact = !task.keys.is_branched_below(task.lease.n_shared());
  task.prompt.clear();
  const auto found = find_session(task, task.lease.n_shared());
  const bool fits = found && fits_state(executor_, task.sequence, *found->state, found->n_tokens);
  if (found && !fits) ++counters_.n_unfit_states;
  if (fits) {
    task.exact = task.exact && found->grade == StateGrade::kExact;
    n_hit = static_cast<size_t>(start_from(task, *found));
  } else if (n_hit > 0) {
    const bool windows_exact =
        executor_.restore(task.sequence, prompt.first(n_hit), task.lease.blocks, request.restore);
    task.exact = task.exact && windows_exact;
  }
  if (!task.exact) task.keys.branch_once(task.lease.n_shared());
  FATHOM_CHECK(task.exact || request.restore == RestoreGrade::kBounded);
  const std::span<const uint8_t> image(task.live->image);
  const Result<void> appended = executor_.append(task.sequence, prompt.subspan(n_hit),
                                                 image.empty() ? image : image.subspan(n_hit));
  if (!appended) return finish(task, EndReason::kError, appended.error().message);
  if (!task.started) count_start(task, static_cast<int64_t>(n_hit));
  task.usage.exact = task.usage.exact && task.exact;
  task.started = true;
}

void Engine::count_start(EngineTask& task, int64_t n_hit) {
  const int64_t n_new = n_hit - std::exchange(task.n_given_back, int64_t{0});
  task.usage.cached_tokens += n_new;
  if (std::exchange(task.counted, true)) return;  // it starts over
  counters_.prompt_tokens += task.live->prompt_tokens();
  ++(n_hit == 0     ? counters_.n_no_hit
     : task.session ? counters_.n_session_hits
     : task.exact   ? counters_.n_exact_hits
                    : counters_.n_bounded_hits);
}

void Engine::resume(EngineTask& task, int64_t now_us) {
  const Result<void> taken = executor_.take_slot(task.sequence);
  if (!taken) return finish(task, EndReason::kError, taken.error().message);
  write_slot(executor_, task.sequence, task.windows);
  task.windows = {};
  task.phase = TaskPhase::kRunning;
  task.since_us = now_us;
  task.last_step = counters_.n_steps;
}

void Engine::park(EngineTask& task) {
  task.windows = read_slot(executor_, task.sequence);
  copies_failed_ = !executor_.memory().sync() || copies_failed_;
  if (copies_failed_) return drop(task);
  executor_.release_slot(task.sequence);
  task.phase = TaskPhase::kParked;
  ++task.usage.n_parked;
  ++counters_.n_parked;
}

// Back to waiting. What it answered is kept and will be fed again behind its prompt.
void Engine::drop(EngineTask& task) {
  release(task);
  task.n_fed = 0;
  task.peek_epoch = -1;
  ++task.usage.n_dropped;
  ++counters_.n_dropped;
}

// Gives back slot and blocks; those that are full stay in the cache.
void Engine::release(EngineTask& task) {
  if (task.phase == TaskPhase::kRunning) executor_.close(task.sequence);
  if (task.restore) give_up_restore(task);
  if (task.fetch) give_up_fetch(task);
  task.sequence = {};
  task.windows = {};
  cache_.release(task.lease);
  task.keys.reset();
  task.session.reset();
  task.phase = TaskPhase::kWaiting;
}

}  // namespace fathom
