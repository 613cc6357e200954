#pragma once

// Scheduler: who gets a slot, and which rows run. Pure functions from a view of the state to a
// plan; the engine carries plans out. Source: docs/design/engine.md.
//
// Order inside a tenant: virtual arrival = arrival - priority * aging_us, then id. It never
// changes, so that nothing is overtaken for ever and two requests never pre-empt each other in
// turns. Between tenants: slots to who holds fewest for its weight, rows to who was served least.

#include <cstdint>
#include <optional>
#include <vector>

namespace fathom {

enum class TaskId : uint64_t {};

enum class TaskPhase : uint8_t {
  kWaiting,    // holds nothing
  kParked,     // holds blocks; its windows are in host memory
  kRestoring,  // holds blocks, which come from a tier, and has a slot set aside
  kRunning,    // holds a slot and blocks
};

struct TaskView {
  TaskId id = {};
  size_t tenant = 0;  // index into SchedulerState::tenants
  int priority = 0;
  int64_t arrival_us = 0;
  TaskPhase phase = TaskPhase::kWaiting;

  // Waiting: what it takes if admitted, in the worst case until its end. Parked: slots alone.
  // Restoring and running: the slots that it holds.
  int64_t n_slots = 1;
  int64_t n_blocks = 0;

  // Running.
  int64_t since_us = 0;      // when it was admitted last
  int64_t pending_rows = 0;  // 0: it waits for its reader
  int64_t unseen_rows = 0;   // that the decoder still has to see, without the pending ones
  int64_t last_step = 0;     // the number of the step that it was part of last
  bool decoding = false;     // its one pending row continues an answer
  bool suspect = false;      // was part of a step that failed: runs alone
  bool whole = false;        // its rows all go through decoder and head
};

struct TenantView {
  double weight = 1;
  double served = 0;  // rows over weight
};

struct SchedulerState {
  int64_t now_us = 0;
  int64_t n_free_slots = 0;
  int64_t n_free_blocks = 0;  // that no admitted task may still need
  double row_us = 0;          // measured time of a row; 0: not known yet
  std::vector<TaskView> tasks;
  std::vector<TenantView> tenants;
};

struct SchedulerLimits {
  int64_t max_rows = 256;
  int64_t end_rows = 0;            // see ExecutorLimits
  int64_t prompt_logit_rows = 0;   // likewise: of tasks that are `whole`
  int64_t step_us_max = 100'000;   // prefill rows beyond it wait for the next step,
  int64_t min_prefill_rows = 16;   // but this many run in any case
  int64_t aging_us = 10'000'000;   // what one step of priority is worth
  int64_t min_run_us = 1'000'000;  // nobody is pre-empted sooner after its admission
  int64_t max_parked = 16;
};

// At most one task is pre-empted a plan; the next plan sees what that gave.
struct AdmissionPlan {
  std::vector<TaskId> admit;  // waiting and parked ones, in order
  std::optional<TaskId> park;
  std::optional<TaskId> drop;  // running or parked
};

// Invariants: the admitted fit into free slots and blocks; a head that does not fit ends the plan.
AdmissionPlan plan_admission(const SchedulerState& state, const SchedulerLimits& limits);

struct PlanItem {
  TaskId id = {};
  int64_t n_rows = 0;
};

struct StepPlan {
  std::vector<PlanItem> items;
};

// Invariants: rows in all and decoder rows are each at most max_rows, rows of `whole` tasks at most
// prompt_logit_rows; every decoding task runs in its turn; a suspect runs alone; wherever rows are
// pending something runs.
StepPlan plan_step(const SchedulerState& state, const SchedulerLimits& limits);

// What task orders follow.
int64_t virtual_arrival(const TaskView& task, const SchedulerLimits& limits);

}  // namespace fathom
