#pragma once

// Muon for matrices, AdamW for the rest, on the flat master.

#include <ATen/ATen.h>

#include "train/params.h"

namespace fathom::train {

struct OptimSettings {
  double muon_lr = 5e-3, muon_momentum = 0.95, muon_decay = 0.1;
  double embed_lr = 3e-3, embed_decay = 0.01;
  double table_lr = 5e-3, small_lr = 1e-3, indexer_lr = 1e-3;
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-10;
  double clip = 1.0;
};

struct StepReport {
  double norm = 0;  // of all gradients but the indexer's, before clipping
  double indexer_norm = 0;
  bool skipped = false;  // a gradient was not finite: nothing was changed
};

class Optimiser {
 public:
  Optimiser(Params& params, const OptimSettings& settings);

  // One update at `factor` times the settings' learning rates, of all groups or of the indexer's.
  StepReport step(double factor, bool indexer_only);

  // Flat state for checkpoints: first and second moments, and the count of updates.
  at::Tensor& first() { return first_; }
  at::Tensor& second() { return second_; }
  int64_t& updates() { return updates_; }

 private:
  void adam(Group group, const at::Tensor& grad, double lr, double decay);
  void muon(const at::Tensor& grad, double lr);

  Params& params_;
  OptimSettings settings_;
  at::Tensor first_, second_;
  int64_t updates_ = 0;
};

// Five Newton-Schulz steps on a batch [b, m, n]: each matrix goes near its polar factor.
at::Tensor newton_schulz(const at::Tensor& batch);

}  // namespace fathom::train
