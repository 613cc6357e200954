#pragma once

// A training recipe: TOML of the form `key = value` with [sections], numbers, strings, booleans and
// one-line lists of numbers. Unknown keys are errors. Paths are relative to the recipe's folder.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "train/optim.h"

namespace fathom::train {

struct Recipe {
  std::string config = "config.json";
  uint64_t seed = 1;
  int64_t steps = 0;     // 0: the schedule runs on the training clock
  double seconds = 600;  // length of the training clock
  int64_t batch_tokens = 65536;
  std::vector<double> lengths{512, 1024, 2048};
  std::vector<double> length_until{0.4, 0.75, 1.0};  // fraction of the run each length lasts to
  double dense_until = 0.10;                         // dense attention before this fraction
  int64_t dense_steps = 300;                         // and before this step at most
  double simulate_from = 0.8;                        // quantisers simulated from here on
  double pool_from = 0.8;                            // candidate pool in force from here on
  bool activations = true;                           // A8 too, while simulating
  int64_t warmup_steps = 60;
  double constant_until = 0.5;
  double final_factor = 0.04;
  double kl_weight = 1.0;
  double pool_weight = 0;     // of what the pool misses, beside the KL (Numerics)
  bool indexer_only = false;  // no loss but the indexer's KL; nothing but the indexer moves
  double bias_step = 1e-2, bias_step_final = 1e-3;
  int64_t bias_steps = 500;  // the bias step decays over this many steps
  int64_t log_every = 20;
  double eval_every = 60;  // seconds of the clock; 0: only at the end
  int64_t eval_tokens = 65536, final_eval_tokens = 262144;
  double checkpoint_every = 150;  // seconds
  // Share of the training sequences by kind of source.
  std::map<std::string, double> mix{
      {"doc", 0.40}, {"code", 0.47}, {"recall", 0.08}, {"dialogue", 0.05}};
  OptimSettings optim;
};

Result<Recipe> parse_recipe(const std::string& text);
Result<Recipe> load_recipe(const std::string& path);

// Learning-rate factor at `step` with `progress` of the run done.
double schedule_factor(const Recipe& recipe, int64_t step, double progress);
int64_t length_at(const Recipe& recipe, double progress);

}  // namespace fathom::train
