#pragma once

// The training loop: deterministic batches, schedule, balance, log, checkpoints that resume.

#include <ATen/ATen.h>

#include <functional>
#include <memory>
#include <string>

#include "train/data.h"
#include "train/model.h"
#include "train/optim.h"
#include "train/recipe.h"

namespace fathom::train {

struct Score {
  std::string name;
  double bits_per_byte = 0;
  double answer_nll = 0;  // nats a token of weight above 1; 0 if there are none
  int64_t tokens = 0;
};

class Trainer {
 public:
  // Resumes from out/checkpoint.bin if it is there.
  static Result<std::unique_ptr<Trainer>> create(const Recipe& recipe, Dataset data,
                                                 const std::string& out, const at::Device& device,
                                                 ParamTypes types);

  // Takes the weights of a released checkpoint, before the first step of a run.
  Result<void> start_from(const std::string& model);

  // Trains until the schedule ends or `limit` seconds of wall time have passed. Logs go to standard
  // error, unless silence(true), and to log.csv and eval.csv in `out`.
  Result<void> run(double limit);
  // Called after each step of run() with the part of the schedule that is done.
  void watch(std::function<void(double progress)> watcher) { watcher_ = std::move(watcher); }
  void silence(bool on) { silent_ = on; }
  bool finished() const { return progress() >= 1; }

  void one_step();
  std::vector<Score> evaluate(int64_t tokens, bool quantised);
  void print_scores(const std::vector<Score>& scores, const char* mode) const;

  Result<void> save() const;
  Result<void> restore();

  Params& params() { return *params_; }
  Model& model() { return *model_; }
  int64_t step() const { return step_; }
  double last_loss() const { return loss_; }
  // Over all steps, restarts included.
  double tokens_per_s() const { return clock_ > 0 ? static_cast<double>(tokens_) / clock_ : 0; }

 private:
  Trainer(const Recipe& recipe, Dataset data, std::string out);

  double progress() const;
  bool simulating() const { return progress() >= recipe_.simulate_from; }
  Numerics numerics(bool quantised) const;
  void balance();
  void log(const Measures& measures, const StepReport& report, double ce);
  std::string checkpoint_path() const { return out_ + "/checkpoint.bin"; }

  Recipe recipe_;
  Dataset data_;
  std::string out_;
  at::Device device_ = at::kCPU;
  std::unique_ptr<Params> params_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Optimiser> optimiser_;
  int64_t step_ = 0;
  double clock_ = 0;  // seconds spent in steps
  double loss_ = 0;
  int64_t tokens_ = 0, skipped_ = 0;
  double log_clock_ = 0;
  int64_t log_tokens_ = 0;
  std::function<void(double)> watcher_;
  bool silent_ = false;
};

}  // namespace fathom::train
