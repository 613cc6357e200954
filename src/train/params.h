#pragma once

// Every parameter of a model in one flat fp32 master, with compute copies that autograd sees.
// Order: optimiser group, then name, then layer, so that the matrices of one kind lie side by side
// and each group is one range. Parameters stored as F32 in a checkpoint come last.

#include <ATen/ATen.h>

#include <string>
#include <unordered_map>
#include <vector>

#include "model/config.h"
#include "model/layer_plan.h"

namespace fathom::train {

enum class Group { kMuon, kEmbed, kTable, kIndexer, kSmall, kSmallF32 };
constexpr int kGroups = 6;

// How a checkpoint stores it (spec/backbone.md 6.2).
enum class Store { kBf16, kF32, kFp8, kFp4, kRows };

struct ParamSpec {
  std::string name;  // without the layer
  int64_t layer;     // -1: none
  std::vector<int64_t> shape;
  Group group;
  Store store;
  double init;       // standard deviation; special cases in init_params
  int64_t rows = 0;  // Muon: rows of one matrix of the stack; 0 otherwise
  int64_t offset = 0;
  int64_t count = 0;
};

struct ParamTypes {
  at::ScalarType low = at::kBFloat16;  // everything but the F32 ones
  at::ScalarType high = at::kFloat;
};

class Params {
 public:
  // The config has passed validate_config.
  Params(const ModelConfig& config, ParamTypes types, const at::Device& device);

  // The compute copy: a leaf with its gradient buffer attached.
  const at::Tensor& get(const std::string& name, int64_t layer = -1) const;
  bool has(const std::string& name, int64_t layer = -1) const;

  const std::vector<ParamSpec>& specs() const { return specs_; }
  const ParamSpec& spec(const std::string& name, int64_t layer = -1) const;
  // Range [first, second) of a group in the flat order.
  std::pair<int64_t, int64_t> range(Group group) const { return ranges_[static_cast<int>(group)]; }

  at::Tensor& master() { return master_; }
  at::Tensor master(const ParamSpec& spec) const;

  // Deterministic starting values.
  void init(const TextConfig& text, uint64_t seed);
  // Master -> compute copies; with `quantised` every FP8, FP4 and row parameter takes the value its
  // stored form has.
  void sync(bool quantised);
  // Autograd passes by the parameters of all other groups from here on.
  void train_only(Group group);
  void zero_grad();
  // All gradients as one fp32 vector in the flat order.
  at::Tensor gradient() const;

 private:
  void add(const ParamSpec& spec);
  void declare_layer(const TextConfig& c, const LayerPlan& plan);
  void quantise(const ParamSpec& spec);

  std::vector<ParamSpec> specs_;
  std::unordered_map<std::string, size_t> index_;
  std::vector<at::Tensor> leaves_;
  std::pair<int64_t, int64_t> ranges_[kGroups];
  int64_t low_count_ = 0;
  at::Tensor master_, low_, high_, low_grad_, high_grad_;
};

}  // namespace fathom::train
