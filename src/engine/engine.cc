#include "engine/engine.h"

#include <algorithm>
#include <utility>

namespace fathom {
namespace {

int64_t blocks_for_positions(int64_t n) { return (n + kBlockTokens - 1) / kBlockTokens; }

SchedulerLimits completed(SchedulerLimits limits, const ExecutorLimits& executor) {
  limits.max_rows = executor.max_rows;
  limits.end_rows = executor.end_rows;
  limits.prompt_logit_rows = executor.prompt_logit_rows;
  return limits;
}

std::vector<Tier*> tiers_of(const EngineOptions& options) {
  std::vector<Tier*> tiers;
  for (const EngineTier& one : options.tiers) tiers.push_back(one.tier);
  return tiers;
}

Error wanted(const std::string& what, const std::string& want, int64_t found) {
  return invalid("request: " + what + ": wanted " + want + ", found " + std::to_string(found));
}

Result<void> validate_logprobs(const Request& request, const ExecutorLimits& limits) {
  const std::string range = "0 to " + std::to_string(kTopLogprobsMax);
  if (request.top_logprobs < 0 || request.top_logprobs > kTopLogprobsMax) {
    return wanted("top_logprobs", range, request.top_logprobs);
  }
  if (!request.prompt_logprobs) return {};
  if (limits.prompt_logit_rows == 0) {
    return invalid("request: prompt_logprobs: wanted an engine that gives them, found another");
  }
  const int64_t n_top = *request.prompt_logprobs;
  if (n_top < 0 || n_top > kTopLogprobsMax) return wanted("prompt_logprobs", range, n_top);
  const int64_t n = static_cast<int64_t>(request.prompt.size()) * (1 + n_top);
  if (n <= kPromptLogprobsMax / request.n_choices) return {};
  return wanted("prompt_logprobs",
                "at most " + std::to_string(kPromptLogprobsMax) +
                    " log probabilities of prompt tokens and likely ones in all choices",
                n * request.n_choices);
}

std::vector<uint8_t> image_flags(const Request& request) {
  if (request.images.empty()) return {};
  std::vector<uint8_t> flags(request.prompt.size());
  for (const ImageSpan& image : request.images) {
    std::fill_n(flags.begin() + static_cast<ptrdiff_t>(image.begin), image.n_tokens, uint8_t{1});
  }
  return flags;
}

}  // namespace

Engine::Engine(Executor& executor, const EngineOptions& options)
    : executor_(executor),
      options_(options),
      limits_(executor.limits()),
      scheduler_(completed(options.scheduler, limits_)),
      mailbox_(options.mailbox),
      cache_(executor.blocks(), executor.memory(), options.block_cost),
      sessions_(options.sessions),
      tiers_(tiers_of(options), executor.blocks().block_bytes(), options.restore_reads_max),
      grammars_(options.tokens, options.grammars_kept) {}

Engine::~Engine() {
  for (const auto& [id, task] : tasks_) release(*task);
}

// In the worst case: the last token of an answer is never computed.
int64_t Engine::total_blocks(const Request& request) const {
  const int64_t n_answer = std::min(request.max_tokens, limits_.context);
  const int64_t n = static_cast<int64_t>(request.prompt.size()) + n_answer - 1;
  return blocks_for_positions(std::min(n, limits_.context));
}

// What a task that holds a lease may still take, with its forks.
int64_t Engine::needed_blocks(const EngineTask& task) const {
  const int64_t total = total_blocks(task.live->request);
  return total - task.lease.n_blocks() +
         task.n_forks * (total - task.live->prompt_tokens() / kBlockTokens);
}

Result<void> Engine::validate_request(const Request& request) const {
  const auto n = static_cast<int64_t>(request.prompt.size());
  if (n < 1 || n >= limits_.context) {
    return wanted("prompt", "1 to " + std::to_string(limits_.context - 1) + " tokens", n);
  }
  for (const int32_t id : request.prompt) {
    if (id >= 0 && id < limits_.vocab_size) continue;
    return wanted("token id", "0 to " + std::to_string(limits_.vocab_size - 1), id);
  }
  if (request.max_tokens < 1) return wanted("max_tokens", "at least 1", request.max_tokens);
  if (request.timeout_us < 0) return wanted("timeout", "at least 0 us", request.timeout_us);
  if (request.n_choices < 1 || request.n_choices > limits_.n_sequences) {
    return wanted("n", "1 to " + std::to_string(limits_.n_sequences), request.n_choices);
  }
  FATHOM_RETURN_IF_ERROR(validate_logprobs(request, limits_));
  if (request.grammar && options_.tokens == nullptr) {
    return invalid("request: grammar: wanted an engine that knows the vocabulary, found none");
  }
  if (!(request.tenant_weight > 0)) return invalid("request: tenant weight: wanted above 0");
  int64_t image_end = 0;
  for (const ImageSpan& image : request.images) {
    if (image.begin < image_end || image.n_tokens < 1 || image.n_tokens > n || image.begin > n ||
        image.begin + image.n_tokens > n) {
      return wanted("image", "ascending spans inside the prompt", image.begin);
    }
    image_end = image.begin + image.n_tokens;
  }
  const int64_t total = total_blocks(request);
  const int64_t all = total + (request.n_choices - 1) * (total - n / kBlockTokens);
  const int64_t n_blocks = executor_.blocks().n_blocks();
  if (all > n_blocks) {
    return wanted("prompt, max_tokens and n",
                  "no more than " + std::to_string(n_blocks) + " blocks of " +
                      std::to_string(kBlockTokens) + " tokens",
                  all);
  }
  return validate(request.sampling);
}

Result<RequestId> Engine::submit(Request request) {
  FATHOM_RETURN_IF_ERROR(validate_request(request));
  return mailbox_.submit(std::move(request));
}

int64_t Engine::steady(int64_t now_us) {
  clock_shift_us_ += std::max<int64_t>(0, last_now_us_ - now_us);
  last_now_us_ = now_us;
  return now_us + clock_shift_us_;
}

bool Engine::tick(int64_t clock_us, int64_t wait_us) {
  const int64_t now_us = steady(clock_us);
  now_us_ = now_us;
  sessions_.expire(now_us);
  take_in(now_us, live_.empty() ? wait_us : 0);
  end_late(now_us);
  poll_tiers(now_us, wait_us);
  poll_states(now_us, wait_us);
  admit(now_us);
  step(now_us);
  mailbox_.tell(status());  // ahead of the outputs that it counts
  emit(now_us);
  return !live_.empty();
}

void Engine::take_in(int64_t now_us, int64_t wait_us) {
  Mailbox::Inbox inbox = mailbox_.take_inbox(wait_us);
  for (Mailbox::Arrived& arrived : inbox.arrived) begin(std::move(arrived), now_us);
  for (const RequestId id : inbox.cancelled) end_request(id, EndReason::kCancelled);
  for (const Mailbox::Asked& asked : inbox.asked) asked.answer(carry_out(asked.order));
}

void Engine::begin(Mailbox::Arrived arrived, int64_t now_us) {
  auto live = std::make_unique<LiveRequest>();
  live->id = arrived.id;
  live->request = std::move(arrived.request);
  live->image = image_flags(live->request);
  live->arrival_us = now_us;
  live->n_unfinished = live->request.n_choices;
  if (live->request.grammar) {
    live->grammar = grammars_.take(std::move(*live->request.grammar));
    live->request.grammar.reset();
  }
  KeyRoot root = options_.key_root;
  root.tenant_salt = live->request.tenant_salt;
  live->root = root_key(root);
  for (int64_t i = 0; i < live->request.n_choices; ++i) {
    live->draws.push_back(live->request.sampling);
    live->draws.back().seed += static_cast<uint64_t>(i);
  }
  EngineTask& task = new_task(*live, 0);
  task.n_forks = live->request.n_choices - 1;
  live_.emplace(live->id, std::move(live));
}

EngineTask& Engine::new_task(LiveRequest& live, int64_t choice) {
  const auto found = tenants_.find(live.request.tenant);
  if (found == tenants_.end()) {
    // Who comes anew has no claim on the time when it was away.
    double least = 0;
    for (const auto& [id, tenant] : tenants_) {
      least = least == 0 ? tenant.served : std::min(least, tenant.served);
    }
    tenants_[live.request.tenant].served = least;
  }
  Tenant& tenant = tenants_[live.request.tenant];
  tenant.weight = live.request.tenant_weight;
  ++tenant.n_tasks;
  const auto id = static_cast<TaskId>(++last_task_);
  return *tasks_.emplace(id, std::make_unique<EngineTask>(id, live, choice)).first->second;
}

void Engine::end_late(int64_t now_us) {
  std::vector<RequestId> late;
  for (const auto& [id, live] : live_) {
    const int64_t timeout_us = live->request.timeout_us;
    if (timeout_us != 0 && now_us - live->arrival_us >= timeout_us) late.push_back(id);
  }
  for (const RequestId id : late) end_request(id, EndReason::kDeadline);
}

void Engine::end_request(RequestId id, EndReason reason) {
  std::vector<EngineTask*> ending;
  for (const auto& [task_id, task] : tasks_) {
    if (task->live->id == id) ending.push_back(task.get());
  }
  for (EngineTask* task : ending) finish(*task, reason);
}

// Ends the task and the choices that would have been forked from it. Destroys it.
void Engine::finish(EngineTask& task, EndReason reason, const std::string& error) {
  LiveRequest& live = *task.live;
  if (reason != EndReason::kError) keep(task);
  release(task);
  task.usage.prompt_tokens = live.prompt_tokens();
  task.usage.answered_tokens = static_cast<int64_t>(task.answer.size());
  if (task.started && reason != EndReason::kError) count_share(task);
  for (int64_t i = 0; i <= task.n_forks; ++i) {
    Output output = {.request = live.id,
                     .choice = task.choice + i,
                     .finish = reason,
                     .error = error,
                     .usage = task.usage};
    if (i == 0) {
      output.tokens = std::move(task.unsent);
      output.prompt = take_prompt(task);
    }
    ended_.emplace_back(&live, std::move(output));
    ++counters_.finished[static_cast<size_t>(reason)];
  }
  const auto tenant = tenants_.find(live.request.tenant);
  if (--tenant->second.n_tasks == 0) tenants_.erase(tenant);
  tasks_.erase(task.id);
}

// How much of what they may draw answers come to, lately.
void Engine::count_share(const EngineTask& task) {
  const double share = static_cast<double>(task.usage.answered_tokens) /
                       static_cast<double>(answer_tokens_max(task));
  answered_share_ = 0.8 * answered_share_ + 0.2 * share;
}

int64_t Engine::answer_tokens_max(const EngineTask& task) const {
  return std::min(task.live->request.max_tokens, limits_.context - task.live->prompt_tokens());
}

// What is to be told of the prompt's tokens: once, and only with choice 0.
std::optional<std::vector<PromptLogprob>> Engine::take_prompt(EngineTask& task) {
  const LiveRequest& live = *task.live;
  const auto n = static_cast<int64_t>(task.prompt.size());
  if (!live.request.prompt_logprobs || n + 1 != live.prompt_tokens()) return std::nullopt;
  if (task.choice != 0 || std::exchange(task.told_prompt, true)) return std::nullopt;
  return std::exchange(task.prompt, {});
}

// Ends first: they make room for other requests.
void Engine::emit(int64_t now_us) {
  int64_t room = mailbox_.room();
  for (; room > 0 && !ended_.empty(); --room) {
    auto [live, output] = std::move(ended_.front());
    ended_.pop_front();
    mailbox_.put(std::move(output));
    if (--live->n_unfinished > 0) continue;
    mailbox_.finished(live->id, live->request.tenant, now_us);
    grammars_.give_back(live->grammar);
    live_.erase(live->id);
  }
  // In turn from tick to tick, so that a small outbox leaves nobody's tokens lying.
  auto at = tasks_.lower_bound(next_emitted_);
  for (size_t n = tasks_.size(); n > 0 && room > 0; --n, ++at) {
    if (at == tasks_.end()) at = tasks_.begin();
    EngineTask& task = *at->second;
    if (task.unsent.empty()) continue;
    mailbox_.put({.request = task.live->id,
                  .choice = task.choice,
                  .tokens = std::exchange(task.unsent, {}),
                  .prompt = take_prompt(task),
                  .usage = task.usage});
    next_emitted_ = static_cast<TaskId>(static_cast<uint64_t>(task.id) + 1);
    --room;
  }
}

void Engine::check() const {
  std::vector<const BlockLease*> leases;
  int64_t n_running = 0;
  int64_t n_restores = 0;
  int64_t n_fetches = 0;
  int64_t needed = 0;
  for (const auto& [id, task] : tasks_) {
    leases.push_back(&task->lease);
    if (task->phase == TaskPhase::kWaiting) {
      FATHOM_CHECK(task->lease.blocks.empty());
      continue;
    }
    n_running += task->phase == TaskPhase::kRunning ? 1 : 0;
    n_restores += task->restore && !task->restore->follows ? 1 : 0;
    const bool waits = task->restore || task->fetch;
    FATHOM_CHECK(waits == (task->phase == TaskPhase::kRestoring));
    FATHOM_CHECK(!task->restore || task->restore->deadline_us > now_us_);
    FATHOM_CHECK(!task->fetch || task->fetch->deadline_us > now_us_);
    FATHOM_CHECK(!task->fetch || fetching_.at(task->fetch->ticket) == id);
    n_fetches += task->fetch ? 1 : 0;
    needed += needed_blocks(*task);
  }
  cache_.check(leases);
  sessions_.check();
  FATHOM_CHECK(needed <= cache_.available());
  FATHOM_CHECK(n_restores == tiers_.n_restores());
  FATHOM_CHECK(n_restores == static_cast<int64_t>(restoring_.size()));
  FATHOM_CHECK(n_fetches == static_cast<int64_t>(fetching_.size()));
  FATHOM_CHECK(n_running == limits_.n_sequences - executor_.windows().n_free());
}

}  // namespace fathom
