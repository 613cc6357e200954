// Goal: plans keep the bounds of a step, nobody is starved, and orders are as the header says.
// Method: random states against the invariants of scheduler.h; small cases by hand.
#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

namespace fathom {
namespace {

TaskId id(uint64_t n) { return static_cast<TaskId>(n); }

TaskView waiting(uint64_t n, size_t tenant, int64_t arrival_us) {
  return {.id = id(n), .tenant = tenant, .arrival_us = arrival_us, .n_blocks = 2};
}

TaskView running(uint64_t n, size_t tenant, int64_t pending_rows) {
  return {.id = id(n),
          .tenant = tenant,
          .phase = TaskPhase::kRunning,
          .pending_rows = pending_rows,
          .decoding = pending_rows == 1};
}

TEST(PlanAdmission, TakesTheTenantThatHoldsLeastThenTheEarliest) {
  SchedulerState state = {.n_free_slots = 3, .n_free_blocks = 100, .tenants = {{}, {}}};
  state.tasks = {running(1, 0, 1), waiting(2, 0, 10), waiting(3, 0, 5), waiting(4, 1, 20),
                 waiting(5, 1, 30)};
  const AdmissionPlan plan = plan_admission(state, {});
  EXPECT_EQ(plan.admit, (std::vector{id(4), id(3), id(5)}));
}

TEST(PlanAdmission, PriorityIsWorthTimeAndNoMore) {
  const SchedulerLimits limits = {.aging_us = 100};
  SchedulerState state = {.n_free_slots = 1, .n_free_blocks = 100, .tenants = {{}}};
  state.tasks = {waiting(1, 0, 0), waiting(2, 0, 99)};
  state.tasks[1].priority = 1;
  EXPECT_EQ(plan_admission(state, limits).admit, std::vector{id(2)});
  state.tasks[1].arrival_us = 101;
  EXPECT_EQ(plan_admission(state, limits).admit, std::vector{id(1)});
}

TEST(PlanAdmission, NobodyOvertakesAHeadThatDoesNotFit) {
  SchedulerState state = {.n_free_slots = 4, .n_free_blocks = 3, .tenants = {{}}};
  state.tasks = {waiting(1, 0, 0), waiting(2, 0, 1)};
  state.tasks[0].n_blocks = 4;
  const AdmissionPlan plan = plan_admission(state, {});
  EXPECT_TRUE(plan.admit.empty());
  EXPECT_FALSE(plan.drop || plan.park);
}

TEST(PlanAdmission, PreemptsTheLastOfTheSameTenantForPriority) {
  SchedulerState state = {.now_us = 5'000'000, .n_free_blocks = 100, .tenants = {{}}};
  state.tasks = {running(1, 0, 1), running(2, 0, 1), waiting(3, 0, 4'000'000)};
  EXPECT_FALSE(plan_admission(state, {}).park);
  state.tasks[2].priority = 1;
  EXPECT_EQ(plan_admission(state, {}).park, id(2));
  EXPECT_EQ(plan_admission(state, {.max_parked = 0}).drop, id(2));
  state.tasks[1].since_us = 4'500'000;  // began just now
  EXPECT_EQ(plan_admission(state, {}).park, id(1));
}

TEST(PlanAdmission, PreemptsATenantThatHoldsMoreThanItsShare) {
  SchedulerState state = {.now_us = 5'000'000, .n_free_blocks = 100, .tenants = {{}, {}}};
  state.tasks = {running(1, 0, 1), running(2, 0, 1), waiting(3, 1, 0)};
  EXPECT_EQ(plan_admission(state, {}).park, id(2));
  state.tenants[0].weight = 2;  // two to one is then fair
  EXPECT_FALSE(plan_admission(state, {}).park);
}

TEST(PlanAdmission, BlocksOfParkedTasksGoBeforeAnythingRunning) {
  SchedulerState state = {.now_us = 5'000'000, .n_free_slots = 1, .tenants = {{}}};
  state.tasks = {running(1, 0, 1), waiting(2, 0, 0), waiting(3, 0, 7)};
  state.tasks[2].phase = TaskPhase::kParked;
  EXPECT_EQ(plan_admission(state, {}).drop, id(3));
}

TEST(PlanAdmission, WhatAPlanAdmitsItDoesNotDrop) {
  SchedulerState state = {.now_us = 5'000'000, .n_free_slots = 2, .tenants = {{}}};
  state.tasks = {waiting(1, 0, 0), waiting(2, 0, 7)};
  state.tasks[0].phase = TaskPhase::kParked;
  state.tasks[0].n_blocks = 0;
  const AdmissionPlan plan = plan_admission(state, {});
  EXPECT_EQ(plan.admit, std::vector{id(1)});
  EXPECT_FALSE(plan.drop || plan.park);
}

TEST(PlanStep, DecodingRowsComeBesideAPromptsChunk) {
  SchedulerState state = {.tenants = {{}}};
  state.tasks = {running(1, 0, 1), running(2, 0, 500), running(3, 0, 1)};
  const StepPlan plan = plan_step(state, {.max_rows = 100});
  ASSERT_EQ(plan.items.size(), 3U);
  EXPECT_EQ(plan.items[2].id, id(2));
  EXPECT_EQ(plan.items[2].n_rows, 98);
}

TEST(PlanStep, AStepsTimeBoundsThePromptButNotToNothing) {
  SchedulerState state = {.row_us = 1000, .tenants = {{}}};
  state.tasks = {running(1, 0, 1), running(2, 0, 500)};
  EXPECT_EQ(plan_step(state, {.step_us_max = 50'000}).items[1].n_rows, 49);
  EXPECT_EQ(plan_step(state, {.step_us_max = 1000}).items[1].n_rows, 16);
}

TEST(PlanStep, RowsGoToTheTenantThatWasServedLeast) {
  SchedulerState state = {.tenants = {{.served = 50}, {.served = 10}}};
  state.tasks = {running(1, 0, 80), running(2, 1, 80)};
  const StepPlan plan = plan_step(state, {.max_rows = 100});
  EXPECT_EQ(plan.items[0].id, id(2));
  EXPECT_EQ(plan.items[0].n_rows, 80);
  EXPECT_EQ(plan.items[1].n_rows, 20);
}

TEST(PlanStep, ASuspectRunsAlone) {
  SchedulerState state = {.tenants = {{}}};
  state.tasks = {running(1, 0, 1), running(2, 0, 9), running(3, 0, 4)};
  state.tasks[1].suspect = state.tasks[2].suspect = true;
  const StepPlan plan = plan_step(state, {});
  ASSERT_EQ(plan.items.size(), 1U);
  EXPECT_EQ(plan.items[0].id, id(2));
}

// Many streams, new prompts all the time, and steps as small as can be: each runs in its turn.
TEST(PlanStep, NeitherStreamsNorPromptsStarve) {
  const SchedulerLimits limits = {.max_rows = 4, .end_rows = 4, .min_prefill_rows = 2};
  SchedulerState state = {.tenants = {{}}};
  for (uint64_t n = 1; n <= 6; ++n) state.tasks.push_back(running(n, 0, 1));
  state.tasks.push_back(running(100, 0, 5));
  std::map<TaskId, int64_t> last;
  int64_t n_prompts = 0;
  for (int64_t step = 1; step <= 400; ++step) {
    const StepPlan plan = plan_step(state, limits);
    ASSERT_FALSE(plan.items.empty());
    for (const PlanItem& item : plan.items) {
      const auto task = std::ranges::find(state.tasks, item.id, &TaskView::id);
      task->last_step = last[item.id] = step;
      if (task->decoding) continue;
      task->pending_rows -= item.n_rows;
      task->unseen_rows += item.n_rows;
      if (task->pending_rows > 0) continue;
      ++n_prompts;
      *task = running(static_cast<uint64_t>(100 + n_prompts), 0, 5);
      task->last_step = step;
    }
    for (uint64_t n = 1; n <= 6; ++n) ASSERT_LT(step - last[id(n)], 20) << n;
  }
  EXPECT_GT(n_prompts, 40);
}

class RandomState {
 public:
  explicit RandomState(uint32_t seed) : random_(seed) {}

  int64_t below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }

  SchedulerState make() {
    SchedulerState state = {.now_us = 1'000'000,
                            .n_free_slots = below(6),
                            .n_free_blocks = below(40),
                            .row_us = static_cast<double>(below(3) * 500)};
    for (int64_t i = 0; i < 3; ++i) {
      state.tenants.push_back({.weight = static_cast<double>(1 + below(3)),
                               .served = static_cast<double>(below(1000))});
    }
    const int64_t n_tasks = below(20);
    for (int64_t i = 0; i < n_tasks; ++i) state.tasks.push_back(task(static_cast<uint64_t>(i + 1)));
    return state;
  }

  SchedulerLimits limits() {
    SchedulerLimits limits = {.max_rows = 1 + below(60), .step_us_max = 1 + below(30'000)};
    limits.min_prefill_rows = 1 + below(10);
    limits.end_rows = below(2) == 0 ? 0 : 1 + below(limits.max_rows);
    limits.prompt_logit_rows = 1 + below(20);
    limits.min_run_us = below(1'000'000);
    limits.max_parked = below(4);
    return limits;
  }

 private:
  TaskView task(uint64_t n) {
    TaskView view = {.id = id(n), .tenant = static_cast<size_t>(below(3))};
    view.priority = static_cast<int>(below(3));
    view.arrival_us = below(1'000'000);
    view.phase = static_cast<TaskPhase>(below(4));
    view.n_slots = below(5) == 0 ? 2 : 1;
    if (view.phase == TaskPhase::kWaiting) view.n_blocks = below(12);
    view.since_us = below(1'000'000);
    view.pending_rows = below(4) == 0 ? below(200) : below(2);
    view.decoding = view.pending_rows == 1 && below(2) == 0;
    view.unseen_rows = view.decoding ? 0 : below(100);
    view.last_step = below(50);
    view.suspect = below(30) == 0;
    view.whole = !view.decoding && below(3) == 0;
    if (view.whole) view.unseen_rows = 0;
    return view;
  }

  std::mt19937 random_;
};

void check_admission(const SchedulerState& state, const AdmissionPlan& plan) {
  int64_t n_slots = 0;
  int64_t n_blocks = 0;
  std::vector<TaskId> seen;
  for (const TaskId admitted : plan.admit) {
    const auto task = std::ranges::find(state.tasks, admitted, &TaskView::id);
    ASSERT_NE(task, state.tasks.end());
    EXPECT_NE(task->phase, TaskPhase::kRunning);
    EXPECT_NE(task->phase, TaskPhase::kRestoring);
    EXPECT_EQ(std::ranges::count(seen, admitted), 0);
    seen.push_back(admitted);
    n_slots += task->n_slots;
    n_blocks += task->n_blocks;
  }
  EXPECT_LE(n_slots, state.n_free_slots);
  EXPECT_LE(n_blocks, state.n_free_blocks);
  EXPECT_FALSE(plan.park && plan.drop);
  if (plan.park) {
    const auto task = std::ranges::find(state.tasks, *plan.park, &TaskView::id);
    EXPECT_EQ(task->phase, TaskPhase::kRunning);
  }
  if (plan.drop) {
    EXPECT_EQ(std::ranges::count(seen, *plan.drop), 0);
    const auto task = std::ranges::find(state.tasks, *plan.drop, &TaskView::id);
    EXPECT_NE(task->phase, TaskPhase::kWaiting);
    EXPECT_NE(task->phase, TaskPhase::kRestoring);
  }
}

void check_step(const SchedulerState& state, const SchedulerLimits& limits, const StepPlan& plan) {
  int64_t n_rows = 0;
  int64_t n_decoder = 0;
  int64_t n_whole = 0;
  for (const PlanItem& item : plan.items) {
    const auto task = std::ranges::find(state.tasks, item.id, &TaskView::id);
    ASSERT_NE(task, state.tasks.end());
    EXPECT_EQ(task->phase, TaskPhase::kRunning);
    EXPECT_GT(item.n_rows, 0);
    EXPECT_LE(item.n_rows, task->pending_rows);
    n_rows += item.n_rows;
    if (task->whole) {
      n_whole += item.n_rows;
      n_decoder += item.n_rows;
    } else if (item.n_rows == task->pending_rows) {
      n_decoder += std::min(limits.end_rows, task->unseen_rows + task->pending_rows);
    }
    if (task->suspect) {
      EXPECT_EQ(plan.items.size(), 1U);
    }
  }
  EXPECT_LE(n_rows, limits.max_rows);
  EXPECT_LE(n_decoder, limits.max_rows);
  EXPECT_LE(n_whole, limits.prompt_logit_rows);
  const bool any = std::ranges::any_of(state.tasks, [](const TaskView& t) {
    return t.phase == TaskPhase::kRunning && t.pending_rows > 0;
  });
  EXPECT_EQ(plan.items.empty(), !any);
}

TEST(Plan, KeepsItsInvariantsInRandomStates) {
  for (uint32_t seed = 0; seed < 5000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RandomState random(seed);
    const SchedulerState state = random.make();
    const SchedulerLimits limits = random.limits();
    check_admission(state, plan_admission(state, limits));
    check_step(state, limits, plan_step(state, limits));
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace fathom
