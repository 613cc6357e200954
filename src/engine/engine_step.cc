// One step: rows in, tokens out, and what follows from them.

#include <algorithm>
#include <utility>

#include "engine/engine.h"

namespace fathom {

// Answer tokens that were drawn become pending rows; after a drop several, which the decoder sees
// in whole runs, as it saw them one by one before.
void Engine::feed(EngineTask& task) {
  if (task.sequence.pending() > 0 || task.fed()) return;
  const size_t n =
      std::min(task.answer.size() - task.n_fed, static_cast<size_t>(limits_.feed_rows));
  std::vector<int32_t> ids;
  for (size_t i = 0; i < n; ++i) ids.push_back(task.answer[task.n_fed + i].id);
  const Result<void> appended = executor_.append(task.sequence, ids, {});
  FATHOM_CHECK(appended.has_value());  // submit() has bounded prompt and answer
  task.n_fed += n;
}

bool Engine::draws(const EngineTask& task, int64_t n_rows) const {
  return n_rows == task.sequence.pending() && task.fed();
}

// Whether the rows that are next go through decoder and head: those of a prompt that is logged.
bool Engine::is_whole(const EngineTask& task) const {
  return task.live->request.prompt_logprobs && task.sequence.length < task.live->prompt_tokens();
}

ExecutorItem Engine::prepare(EngineTask& task, int64_t n_rows) {
  const int64_t end = task.sequence.length + n_rows;
  const int64_t n_blocks = (end + kBlockTokens - 1) / kBlockTokens;
  const Result<void> grown = cache_.grow(task.lease, std::max(n_blocks, task.lease.n_blocks()));
  FATHOM_CHECK(grown.has_value());  // admission has reserved the worst case
  task.sequence.blocks = task.lease.blocks;
  ExecutorItem item = {.sequence = &task.sequence,
                       .n_rows = n_rows,
                       .prompt_tokens = task.live->prompt_tokens(),
                       .top_logprobs = task.live->request.top_logprobs};
  if (is_whole(task)) {
    item.prompt = &task.prompt;
    item.prompt_top = *task.live->request.prompt_logprobs;
  }
  if (draws(task, n_rows)) {
    item.draws =
        std::span(task.live->draws)
            .subspan(static_cast<size_t>(task.choice), static_cast<size_t>(1 + task.n_forks));
    item.mask = task.form.mask();
  }
  return item;
}

void Engine::step(int64_t now_us) {
  const bool copied = executor_.memory().sync().has_value();
  if (std::exchange(copies_failed_, false) || !copied) drop_running();
  StepPlan plan = plan_step(view(now_us), scheduler_);
  if (start_over_overtaken(plan, now_us)) {
    // Who started over from a kept state had it written just now, behind the look above.
    if (!executor_.memory().sync()) drop_running();
    plan = plan_step(view(now_us), scheduler_);
  }
  if (plan.items.empty()) return;
  ++counters_.n_steps;
  std::vector<EngineTask*> tasks;
  std::vector<ExecutorItem> items;
  std::vector<int64_t> entries;
  std::vector<int64_t> replayed;
  int64_t n_rows = 0;
  for (const PlanItem& planned : plan.items) {
    EngineTask& task = *tasks_.at(planned.id);
    tasks.push_back(&task);
    items.push_back(prepare(task, planned.n_rows));
    entries.push_back(task.sequence.entries_end);
    replayed.push_back(task.sequence.replayed);
    n_rows += planned.n_rows;
  }
  const int64_t start_us = options_.clock_us ? options_.clock_us() : 0;
  const Result<std::vector<SampledToken>> tokens = executor_.step(items);
  if (!tokens) return settle_failure(tasks, tokens.error());
  if (options_.clock_us) measure(options_.clock_us() - start_us, n_rows);
  counters_.n_rows += n_rows;
  std::span<const SampledToken> rest(*tokens);
  for (size_t i = 0; i < tasks.size(); ++i) {
    settle_rows(*tasks[i], items[i].n_rows, entries[i], replayed[i]);
  }
  put_offered();
  for (size_t i = 0; i < tasks.size(); ++i) {
    const size_t n = items[i].draws.size();
    if (n > 0) settle_draws(*tasks[i], rest.first(n), now_us);
    rest = rest.subspan(n);
  }
  FATHOM_CHECK(rest.empty());
}

// One step that a jump of the clock or a busy machine stretched does not starve prompts for long.
void Engine::measure(int64_t step_us, int64_t n_rows) {
  counters_.step_us += std::max<int64_t>(0, step_us);
  const double row_us =
      static_cast<double>(std::max<int64_t>(0, step_us)) / static_cast<double>(n_rows);
  step_us_ = step_us_ == 0 ? static_cast<double>(step_us)
                           : 0.8 * step_us_ + 0.2 * static_cast<double>(step_us);
  row_us_ = row_us_ == 0 ? row_us : 0.8 * row_us_ + 0.2 * std::min(row_us, 8 * row_us_);
}

void Engine::settle_rows(EngineTask& task, int64_t n_rows, int64_t entries_before,
                         int64_t replayed_before) {
  Sequence& sequence = task.sequence;
  task.last_step = counters_.n_steps;
  task.suspect = false;
  const int64_t n_prompt = task.live->prompt_tokens();
  counters_.prompt_rows +=
      std::min(sequence.length, n_prompt) - std::min(sequence.length - n_rows, n_prompt);
  task.usage.computed_tokens += sequence.entries_end - entries_before;
  task.usage.replayed_tokens += sequence.replayed - replayed_before;
  counters_.computed_tokens += sequence.entries_end - entries_before;
  counters_.replayed_tokens += sequence.replayed - replayed_before;
  Tenant& tenant = tenants_.at(task.live->request.tenant);
  tenant.served += static_cast<double>(n_rows) / tenant.weight;
  const auto n_entries = static_cast<size_t>(sequence.entries_end);
  task.keys.extend(std::span(sequence.tokens).first(n_entries), task.live->request.images);
  const std::span<const BlockKey> full = task.keys.keys().first(n_entries / kBlockTokens);
  offer(task, cache_.publish(task.lease, full));
  sequence.blocks = task.lease.blocks;
  if (sequence.length == prompt_point(task)) keep(task);
}

// May destroy the task.
void Engine::settle_draws(EngineTask& task, std::span<const SampledToken> tokens, int64_t now_us) {
  const int64_t n_forks = task.n_forks;
  if (task.answer.empty()) counters_.cached_tokens += task.usage.skipped_tokens();
  for (int64_t i = 1; i <= n_forks; ++i) fork(task, tokens[static_cast<size_t>(i)], now_us);
  push_token(task, tokens[0]);
}

void Engine::fork(EngineTask& leader, const SampledToken& token, int64_t now_us) {
  const int64_t choice = leader.choice + leader.live->request.n_choices - leader.n_forks;
  EngineTask& task = new_task(*leader.live, choice);
  --leader.n_forks;
  task.usage = leader.usage;
  task.usage.computed_tokens = 0;
  task.usage.replayed_tokens = 0;
  task.exact = leader.exact;
  task.form = leader.form;
  task.started = true;
  Result<Sequence> opened = executor_.open();
  if (!opened) return finish(task, EndReason::kError, opened.error().message);
  task.sequence = std::move(*opened);
  task.phase = TaskPhase::kRunning;
  task.since_us = now_us;
  task.last_step = leader.last_step;
  Result<BlockLease> lease = cache_.fork(leader.lease, leader.sequence.length);
  FATHOM_CHECK(lease.has_value());  // reserved with the leader
  task.lease = std::move(*lease);
  task.keys = leader.keys;
  executor_.copy(task.sequence, leader.sequence);
  task.sequence.blocks = task.lease.blocks;
  push_token(task, token);
}

// May destroy the task.
void Engine::push_token(EngineTask& task, const SampledToken& token) {
  const Request& request = task.live->request;
  ++counters_.n_tokens;
  if (std::ranges::find(request.stop_ids, token.id) != request.stop_ids.end()) {
    return finish(task, EndReason::kStop);
  }
  ++counters_.answered_tokens;
  task.answer.push_back(token);
  task.unsent.push_back(token);
  const Result<bool> ended = follow_form(task, token.id);
  if (!ended) return finish(task, EndReason::kError, ended.error().message);
  if (*ended) return finish(task, EndReason::kStop);
  const auto n = static_cast<int64_t>(task.answer.size());
  if (n == request.max_tokens || task.live->prompt_tokens() + n == limits_.context) {
    finish(task, EndReason::kLength);
  }
}

// A copy between two steps failed: which one does not show, so nothing that runs is used further.
void Engine::drop_running() {
  ++counters_.n_failed_steps;
  for (const auto& [id, task] : tasks_) {
    if (task->phase == TaskPhase::kRunning) drop(*task);
  }
}

// Whether the answer is a whole text that nothing can follow.
Result<bool> Engine::follow_form(EngineTask& task, int32_t id) {
  if (!task.form.bound()) return false;
  FATHOM_ASSIGN_OR_RETURN(const bool goes_on, task.form.accept(id));
  if (!goes_on) return true;
  FATHOM_RETURN_IF_ERROR(task.form.find_mask(task.live->request.stop_ids));
  return false;
}

// Nothing of a failed step is used: its tasks begin again, each alone, and one that fails alone is
// lost.
void Engine::settle_failure(std::span<EngineTask* const> tasks, const Error& error) {
  ++counters_.n_failed_steps;
  const bool alone = tasks.size() == 1 && tasks[0]->suspect;
  for (EngineTask* task : tasks) {
    if (alone) {
      finish(*task, EndReason::kError, error.message);
      continue;
    }
    drop(*task);
    task->suspect = true;
  }
}

}  // namespace fathom
