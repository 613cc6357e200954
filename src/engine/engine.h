#pragma once

// Engine: the loop that turns requests into answers. One thread ticks and owns everything here; the
// Mailbox alone may be used by others. Time is an argument. Source: docs/design.md section 4,
// docs/design/engine.md.
//
//   tick: take the inbox, end what is late, take what tiers brought, admit and pre-empt, plan a
//   step, run it, settle, emit.
//
// An answer of an exact request equals, bit for bit, the one that it gets alone.

#include <functional>
#include <map>
#include <memory>

#include "cache/state_tier.h"
#include "engine/grammar_store.h"
#include "engine/mailbox.h"
#include "engine/status.h"
#include "engine/task.h"

namespace fathom {

struct EngineTier {
  std::string name;      // in metrics
  Tier* tier = nullptr;  // outlives the engine
};

struct EngineOptions {
  MailboxLimits mailbox;
  SchedulerLimits scheduler;  // max_rows and end_rows are the executor's
  KeyRoot key_root;           // without the tenant's salt
  BlockCost block_cost;
  SessionLimits sessions;               // of state that outlives its request
  std::vector<EngineTier> tiers;        // behind the pool, the fastest first
  int64_t restore_us_max = 30'000'000;  // that a request waits for them before it computes
  int64_t restore_reads_max = 64;       // blocks, each of which takes host memory
  StateTier* states = nullptr;          // of other processes; null: none; outlives the engine
  int64_t states_us_max = 50'000;       // that a request waits for one of them, once
  const TokenTrie* tokens = nullptr;    // for requests with a grammar; outlives the engine
  size_t grammars_kept = 16;            // that no live request has
  int64_t max_unsent = 64;  // tokens of a choice that the outbox had no room for, before it waits
  // Time in microseconds, to measure steps by; null: steps are bounded by rows alone.
  std::function<int64_t()> clock_us;
};

class Engine {
 public:
  Engine(Executor& executor, const EngineOptions& options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Any thread. kInvalid names what is wrong with the request; kExhausted: try again after
  // retry_us.
  Result<RequestId> submit(Request request);
  void cancel(RequestId id) { mailbox_.cancel(id); }
  std::vector<Output> take_outputs(size_t n, int64_t timeout_us = 0) {
    return mailbox_.take_outputs(n, timeout_us);
  }
  int64_t retry_us(TenantId tenant) const { return mailbox_.retry_us(tenant); }
  // Any thread. kExhausted after drain().
  Result<void> ask(const CacheOrder& order, Mailbox::CacheAnswer answer) {
    return mailbox_.ask(order, std::move(answer));
  }
  // Of the tenant with this salt, on its blocks in tiers. Any thread.
  uint64_t tag_of(const std::string& salt) const;
  // Takes no more requests; what is live is finished by further ticks.
  void drain() { mailbox_.close(); }

  // The engine thread. Waits up to wait_us for work where there is none. Whether anything is live.
  // A clock that goes back is taken to stand still, and goes on from there.
  bool tick(int64_t clock_us, int64_t wait_us = 0);

  EngineLoad load() const;
  EngineStatus status() const;  // mailbox().status(), for other threads
  const EngineCounters& counters() const { return counters_; }
  const PrefixCache& cache() const { return cache_; }
  const SessionCache& sessions() const { return sessions_; }
  const Mailbox& mailbox() const { return mailbox_; }
  // Stops the program where blocks or slots are not accounted for. For tests.
  void check() const;

 private:
  struct Tenant {
    double weight = 1;
    double served = 0;
    int64_t n_tasks = 0;
  };
  using Tasks = std::map<TaskId, std::unique_ptr<EngineTask>>;

  // engine.cc
  int64_t steady(int64_t now_us);
  Result<void> validate_request(const Request& request) const;
  void take_in(int64_t now_us, int64_t wait_us);
  void begin(Mailbox::Arrived arrived, int64_t now_us);
  EngineTask& new_task(LiveRequest& live, int64_t choice);
  void end_late(int64_t now_us);
  void end_request(RequestId id, EndReason reason);
  std::optional<std::vector<PromptLogprob>> take_prompt(EngineTask& task);
  void emit(int64_t now_us);
  void finish(EngineTask& task, EndReason reason, const std::string& error = {});
  void count_share(const EngineTask& task);
  int64_t answer_tokens_max(const EngineTask& task) const;
  int64_t total_blocks(const Request& request) const;
  int64_t needed_blocks(const EngineTask& task) const;

  // engine_status.cc
  void count_into(EngineLoad& load, const EngineTask& task) const;
  int64_t next_end_us() const;
  CacheReport carry_out(const CacheOrder& order);

  // engine_admit.cc
  void admit(int64_t now_us);
  SchedulerState view(int64_t now_us);
  TaskView view_of(EngineTask& task);
  void view_heads(SchedulerState& state);
  PrefixCache::Hit peek(EngineTask& task);
  void find_prefix(EngineTask& task);
  bool follow_branch(EngineTask& task, int64_t n_exact, bool in_tiers);
  void match_prefix(EngineTask& task);
  void start(EngineTask& task, int64_t now_us);
  void run(EngineTask& task, int64_t now_us);
  void count_start(EngineTask& task, int64_t n_hit);
  void resume(EngineTask& task, int64_t now_us);
  void park(EngineTask& task);
  void drop(EngineTask& task);
  void release(EngineTask& task);

  // engine_restore.cc
  TierBlock tier_block(const EngineTask& task, int64_t index) const;
  void offer(const EngineTask& task, int64_t n_added);
  void put_offered();
  bool begin_restore(EngineTask& task, int64_t now_us, int64_t deadline_us);
  std::optional<RestoreId> restore_of(const BlockKey& key) const;
  void poll_tiers(int64_t now_us, int64_t wait_us);
  void take_blocks(int64_t wait_us);
  void end_restore(EngineTask& task, int64_t now_us);
  void end_follower(EngineTask& task, int64_t now_us);
  void give_up_restore(EngineTask& task);
  void run_when_all_is_there(EngineTask& task, int64_t now_us);

  // engine_session.cc
  int64_t prompt_point(const EngineTask& task) const;
  void keep(EngineTask& task);
  int64_t replay_rows(const EngineTask& task) const;
  SessionQuery session_query(const EngineTask& task, int64_t n_blocks) const;
  std::optional<SessionCache::Found> find_session(const EngineTask& task, int64_t n_blocks) const;
  bool is_overtaken(const EngineTask& task) const;
  bool start_over_overtaken(const StepPlan& plan, int64_t now_us);
  int64_t start_from(EngineTask& task, const SessionCache::Found& found);

  // engine_fetch.cc
  bool begin_fetch(EngineTask& task, int64_t now_us);
  void poll_states(int64_t now_us, int64_t wait_us);
  void take_state(EngineTask& task, FoundState& found);
  void give_up_fetch(EngineTask& task);

  // engine_step.cc
  void step(int64_t now_us);
  void feed(EngineTask& task);
  ExecutorItem prepare(EngineTask& task, int64_t n_rows);
  void settle_rows(EngineTask& task, int64_t n_rows, int64_t entries_before,
                   int64_t replayed_before);
  void settle_draws(EngineTask& task, std::span<const SampledToken> tokens, int64_t now_us);
  void push_token(EngineTask& task, const SampledToken& token);
  Result<bool> follow_form(EngineTask& task, int32_t id);
  void fork(EngineTask& leader, const SampledToken& token, int64_t now_us);
  void drop_running();
  void settle_failure(std::span<EngineTask* const> tasks, const Error& error);
  void measure(int64_t step_us, int64_t n_rows);
  bool draws(const EngineTask& task, int64_t n_rows) const;
  bool is_whole(const EngineTask& task) const;

  Executor& executor_;
  const EngineOptions options_;
  const ExecutorLimits limits_;
  SchedulerLimits scheduler_;
  Mailbox mailbox_;
  PrefixCache cache_;
  SessionCache sessions_;
  PrefixTiers tiers_;
  std::map<RestoreId, TaskId> restoring_;
  std::map<TierTicket, TaskId> fetching_;
  std::vector<std::pair<TierBlock, std::vector<std::byte>>> offered_;  // by the step that ends
  GrammarStore grammars_;
  std::map<RequestId, std::unique_ptr<LiveRequest>> live_;
  Tasks tasks_;
  std::map<TenantId, Tenant> tenants_;
  std::deque<std::pair<LiveRequest*, Output>> ended_;  // last outputs that wait for room
  uint64_t last_task_ = 0;
  TaskId next_emitted_ = {};
  double row_us_ = 0;
  double step_us_ = 0;  // of a step, on average
  double answered_share_ = 1;
  int64_t now_us_ = 0;          // of this tick
  bool copies_failed_ = false;  // since the last step: what runs is not to be trusted
  int64_t last_now_us_ = 0;     // as tick() was told
  int64_t clock_shift_us_ = 0;
  EngineCounters counters_;
};

}  // namespace fathom
