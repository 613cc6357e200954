#pragma once

// Benchmarks: figures beside their bounds, measured in one run. One function a suite.

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/layer_plan.h"
#include "model/weights.h"
#include "ops/backends.h"

namespace fathom {

// bound 0: no bound is known, and there is no fraction.
struct BenchRow {
  std::string name;
  double value = 0;
  std::string unit;
  double bound = 0;
  std::string conditions;

  double fraction() const { return bound > 0 ? value / bound : 0; }
};

struct BenchOptions {
  BackendOptions backend;
  std::string model;        // a folder; empty: a proxy of `plan`
  std::string folder;       // what decode and prefill load: `model`, or where the proxy is
  std::string plan = "p7";  // written once into `proxy_dir`
  std::string proxy_dir;
  int64_t prompt = 512;   // tokens of a prefill
  int64_t rows = 512;     // of a prefill step
  int64_t steps = 16;     // decode steps
  int64_t batch = 1;      // sequences of a decode step
  bool invented = false;  // decode behind random state instead of a prefill
  bool progress = false;  // a line for each part, on standard error
  bool notes = true;      // on standard error
};

// Steps that are run before the timed ones, where a backend keeps them.
inline constexpr int64_t kWarmupSteps = 8;

using BenchRows = std::vector<BenchRow>;

// Machine figures themselves, and the cost of starting a parallel loop.
void bench_cpu(const MachineBounds& machine, BenchRows& rows);

// linear with weights of every stored form, for one row and for many.
Result<void> bench_ops(const BenchOptions& options, const MachineBounds& machine, BenchRows& rows);

// The folder of the proxy of options.plan, which is written unless it is there. Its name tells the
// plan's values, so that another plan of the same name is another folder. kCancelled where a signal
// stopped the writing; kExhausted where another process writes proxies there, or without room.
Result<std::string> proxy_folder(const BenchOptions& options);

// Prefill and decode of one sequence of the whole model in options.folder.
struct ModelSuites {
  bool prefill = false;
  bool decode = false;
};
Result<void> bench_model(const BenchOptions& options, const ModelSuites& suites,
                         const MachineBounds& machine, BenchRows& rows);

// Encoding and decoding of text with the tokenizer of options.model, on one thread.
Result<void> bench_tokenizer(const BenchOptions& options, BenchRows& rows);

// Multiply-adds of a prefill of n prompt rows in the deploy schedule: encoder and the decoder's
// entries over all rows, decoder over the last window, head over one row. Counted are out x in of
// every matrix that a row meets, 2 H dh a slot of its attention lists, and Hi di an entry that its
// indexer scores; norms, rotations, gates and Sinkhorn are not.
double prefill_multiply_adds(const ModelConfig& config, const ModelPlan& plan,
                             const Weights& weights, int64_t n);

}  // namespace fathom
