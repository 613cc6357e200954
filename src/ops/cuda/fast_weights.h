#pragma once

// Weights in the order and the exponents of the tensor-core kernels (pack.h), beside the weights as
// they lie. Whether a weight has this form is decided once, from its shape and from how many of its
// values rebasing changes; the others keep the exact kernels.

#include <map>
#include <span>

#include "ops/cuda/memory.h"
#include "ops/words.h"

namespace fathom::cuda {

// The experts of a layer, the shared one with them.
struct FastExperts {
  const uint8_t* gate_up_units = nullptr;
  const float* gate_up_scales = nullptr;
  const uint8_t* down_units = nullptr;
  const float* down_scales = nullptr;
  const uint8_t* shared_pair_units = nullptr;
  const uint8_t* shared_down_units = nullptr;
};

// What preparing found, for people.
struct FastReport {
  int64_t fast = 0;   // matrices
  int64_t exact = 0;  // whose shape or exponents do not allow it
  int64_t bytes = 0;  // of the packed copies
  uint64_t changed = 0;
};

class FastWeights {
 public:
  explicit FastWeights(Memory& memory) : memory_(memory) {}

  // Told again, a weight is packed again. kExhausted where the memory is not to be had.
  Result<void> add(const Weight& w);
  Result<void> add(std::span<const ExpertWeights> experts, const ExpertWeights& shared);

  // A weight that rows meet by their bf16 values.
  Result<void> add_values(const Weight& w);

  // The units of value_product, or null.
  const uint8_t* values(const Weight& w) const;
  // The units of dense_decode, or null.
  const uint8_t* dense(const Weight& w) const;
  // Null where the layer keeps the exact kernels.
  const FastExperts* experts(std::span<const ExpertWeights> experts) const;

  const FastReport& report() const { return report_; }

 private:
  struct Dense {
    int64_t out = 0;
    int64_t in = 0;
    Buffer units;
  };
  struct Layer {
    FastExperts view;
    Buffer memory;
  };

  Result<unsigned long long*> counter();
  // Values that were changed since the counter was last read.
  Result<uint64_t> take_changed();
  Result<Buffer> pack_pair(const ExpertWeights& shared);
  Result<void> pack_layer(std::span<const ExpertWeights> experts, Layer& layer);

  static const uint8_t* units_of(const std::map<const void*, Dense>& all, const Weight& w);

  Memory& memory_;
  Buffer changed_;
  std::map<const void*, Dense> dense_;
  std::map<const void*, Dense> values_;
  std::map<const void*, Layer> layers_;
  std::map<const void*, Dense> pairs_;  // of shared experts, by their gate matrix
  FastReport report_;
};

}  // namespace fathom::cuda
