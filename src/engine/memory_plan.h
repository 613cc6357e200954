#pragma once

// What a model and its sequences take of a GPU's memory, counted before anything is loaded.

#include <string>

#include "engine/runner.h"
#include "model/config.h"
#include "ops/backends.h"

namespace fathom {

struct MemoryPlan {
  int64_t weights = 0;
  int64_t packed = 0;  // copies in the order of the fast kernels, at most
  int64_t blocks = 0;  // of all contexts
  int64_t windows = 0;
  int64_t workspace = 0;
  int64_t margin = 0;  // work space of words, tables, the driver's own

  int64_t total() const { return weights + packed + blocks + windows + workspace + margin; }
};

// The config must have passed validate_config.
Result<MemoryPlan> plan_memory(const ModelConfig& config, const RunnerOptions& options,
                               Numerics numerics);

// One line: "44.1 GB: weights 21.0, packed 20.1, ...".
std::string plan_line(const MemoryPlan& plan);

// kExhausted, naming the parts, where the plan is larger than `available` bytes.
Result<void> check_plan(const MemoryPlan& plan, int64_t available);

}  // namespace fathom
