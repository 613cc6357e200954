#include "engine/scheduler.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "base/check.h"

namespace fathom {
namespace {

using View = const TaskView*;

class Order {
 public:
  explicit Order(const SchedulerLimits& limits) : limits_(limits) {}
  bool operator()(View a, View b) const { return key(a) < key(b); }

 private:
  std::tuple<int64_t, TaskId> key(View t) const { return {virtual_arrival(*t, limits_), t->id}; }
  const SchedulerLimits& limits_;
};

// One plan of admissions in the making.
class Admission {
 public:
  Admission(const SchedulerState& state, const SchedulerLimits& limits)
      : state_(state),
        limits_(limits),
        order_(limits),
        held_(state.tenants.size()),
        n_slots_(state.n_free_slots),
        n_blocks_(state.n_free_blocks) {
    for (const TaskView& task : state.tasks) {
      if (task.phase == TaskPhase::kRunning || task.phase == TaskPhase::kRestoring) {
        held_[task.tenant] += task.n_slots;
      } else {
        candidates_.push_back(&task);
      }
      if (task.phase == TaskPhase::kParked) ++n_parked_;
    }
  }

  AdmissionPlan make() {
    while (const View head = next_head()) {
      if (!fits(*head)) {
        make_room(*head);
        break;
      }
      plan_.admit.push_back(head->id);
      n_slots_ -= head->n_slots;
      n_blocks_ -= head->n_blocks;
      held_[head->tenant] += head->n_slots;
      std::erase(candidates_, head);
    }
    return std::move(plan_);
  }

 private:
  bool fits(const TaskView& task) const {
    return task.n_slots <= n_slots_ && task.n_blocks <= n_blocks_;
  }

  double share(size_t tenant, int64_t more) const {
    return static_cast<double>(held_[tenant] + more) / state_.tenants[tenant].weight;
  }

  // The first of the tenant that holds least.
  View next_head() const {
    View best = nullptr;
    const auto before = [&](View a, View b) {
      const auto of = [&](View t) {
        return std::tuple(share(t->tenant, 0), state_.tenants[t->tenant].served);
      };
      if (a->tenant != b->tenant && of(a) != of(b)) return of(a) < of(b);
      return order_(a, b);
    };
    for (const View task : candidates_) {
      if (best == nullptr || before(task, best)) best = task;
    }
    return best;
  }

  // Whether the waiting `head` may take the place of the running `task`.
  bool may_replace(const TaskView& head, const TaskView& task) const {
    if (state_.now_us - task.since_us < limits_.min_run_us) return false;
    if (head.tenant == task.tenant) {
      return head.priority > task.priority && order_(&head, &task);
    }
    return share(task.tenant, -1) >= share(head.tenant, head.n_slots);
  }

  void make_room(const TaskView& head) {
    View last_running = nullptr;
    View last_parked = nullptr;
    // Of the parked ones, not those that this plan has just admitted.
    for (const View task : candidates_) {
      if (task->phase != TaskPhase::kParked || task->id == head.id) continue;
      if (last_parked == nullptr || order_(last_parked, task)) last_parked = task;
    }
    for (const TaskView& task : state_.tasks) {
      if (task.phase != TaskPhase::kRunning || !may_replace(head, task)) continue;
      if (last_running == nullptr || order_(last_running, &task)) last_running = &task;
    }
    const bool wants_blocks = head.n_blocks > n_blocks_;
    if (wants_blocks && last_parked != nullptr) {
      plan_.drop = last_parked->id;
    } else if (last_running != nullptr && !wants_blocks && n_parked_ < limits_.max_parked) {
      plan_.park = last_running->id;
    } else if (last_running != nullptr) {
      plan_.drop = last_running->id;
    }
  }

  const SchedulerState& state_;
  const SchedulerLimits& limits_;
  Order order_;
  std::vector<int64_t> held_;  // slots, by tenant
  std::vector<View> candidates_;
  int64_t n_slots_ = 0;
  int64_t n_blocks_ = 0;
  int64_t n_parked_ = 0;
  AdmissionPlan plan_;
};

// Of a task whose pending rows end.
int64_t decoder_rows(const TaskView& task, const SchedulerLimits& limits) {
  return std::min(limits.end_rows, task.unseen_rows + task.pending_rows);
}

// One step in the making.
class StepRows {
 public:
  explicit StepRows(const SchedulerLimits& limits) : limits_(limits) {}

  int64_t left() const { return limits_.max_rows - n_rows_; }

  // As many of the task's rows as fit into `budget` and the limits; how many.
  int64_t add(const TaskView& task, int64_t budget) {
    int64_t n = std::min({task.pending_rows, budget, left()});
    const int64_t decoder_left = limits_.max_rows - n_decoder_;
    if (task.whole) {
      n = std::min({n, decoder_left, limits_.prompt_logit_rows - n_whole_});
    } else if (n == task.pending_rows && decoder_rows(task, limits_) > decoder_left) {
      --n;
    }
    if (n <= 0) return 0;
    n_rows_ += n;
    if (task.whole) {
      n_decoder_ += n;
      n_whole_ += n;
    } else if (n == task.pending_rows) {
      n_decoder_ += decoder_rows(task, limits_);
    }
    plan_.items.push_back({task.id, n});
    return n;
  }

  StepPlan take() { return std::move(plan_); }

 private:
  const SchedulerLimits& limits_;
  int64_t n_rows_ = 0;
  int64_t n_decoder_ = 0;
  int64_t n_whole_ = 0;
  StepPlan plan_;
};

// Rows of a step that keeps its time, beside n_decoding ones.
int64_t prefill_budget(const SchedulerState& state, const SchedulerLimits& limits,
                       int64_t n_decoding) {
  if (state.row_us <= 0) return limits.max_rows;
  const double rows = std::floor(static_cast<double>(limits.step_us_max) / state.row_us);
  const auto all = static_cast<int64_t>(std::min(rows, static_cast<double>(limits.max_rows)));
  return std::max(all - n_decoding, limits.min_prefill_rows);
}

// Rows that decoding tasks leave to the first prompt: some in any case, and all that its end
// needs where it has waited longer than they have. Turn by turn, neither starves the other.
int64_t kept_rows(const TaskView& prompt, const std::vector<View>& decoding,
                  const SchedulerLimits& limits) {
  const int64_t some = std::min(limits.min_prefill_rows, limits.max_rows / 2);
  if (decoding.empty() || prompt.last_step >= decoding[0]->last_step) return some;
  return std::max(some, decoder_rows(prompt, limits));
}

}  // namespace

int64_t virtual_arrival(const TaskView& task, const SchedulerLimits& limits) {
  return task.arrival_us - task.priority * limits.aging_us;
}

AdmissionPlan plan_admission(const SchedulerState& state, const SchedulerLimits& limits) {
  return Admission(state, limits).make();
}

StepPlan plan_step(const SchedulerState& state, const SchedulerLimits& limits) {
  const Order order(limits);
  std::vector<View> decoding;
  std::vector<View> prefilling;
  View suspect = nullptr;
  for (const TaskView& task : state.tasks) {
    if (task.phase != TaskPhase::kRunning || task.pending_rows == 0) continue;
    if (task.suspect && (suspect == nullptr || order(&task, suspect))) suspect = &task;
    (task.decoding ? decoding : prefilling).push_back(&task);
  }
  StepRows rows(limits);
  if (suspect != nullptr) {
    rows.add(*suspect, limits.max_rows);
    return rows.take();
  }
  // Who waited longest for a step comes first: with more streams than rows they take turns.
  std::ranges::sort(decoding, [](View a, View b) {
    return std::tuple(a->last_step, a->id) < std::tuple(b->last_step, b->id);
  });
  std::ranges::sort(prefilling, [&](View a, View b) {
    const double served_a = state.tenants[a->tenant].served;
    const double served_b = state.tenants[b->tenant].served;
    return served_a != served_b ? served_a < served_b : order(a, b);
  });
  const int64_t kept = prefilling.empty() ? 0 : kept_rows(*prefilling[0], decoding, limits);
  int64_t n_decoding = 0;
  for (const View task : decoding) {
    if (rows.left() <= kept) break;
    n_decoding += rows.add(*task, 1);
  }
  int64_t budget = prefill_budget(state, limits, n_decoding);
  for (const View task : prefilling) budget -= rows.add(*task, budget);
  return rows.take();
}

}  // namespace fathom
