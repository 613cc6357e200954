#pragma once

// Random models in the released format, for tests and for proxies of true shape.
//
// Every 8 bytes of a tensor are a function of (seed, name, position) alone: the same plan and seed
// give the same bytes with any number of threads, and any part can be made by itself. Ranges are
// chosen so that a model computes sane values: residual RMS near 1, small sub-layer outputs (gain
// 0.11 of wo_b, 0.06 of w2), spread router scores (spec/backbone.md 7, advice on weights).

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "checkpoint/expected.h"
#include "model/config.h"

namespace fathom {

class RandomWeights {
 public:
  RandomWeights(const ModelConfig& config, uint64_t seed);

  std::span<const ExpectedTensor> tensors() const { return tensors_; }

  // Bytes [offset, offset + out.size()) of tensors()[tensor]; offset is a multiple of 8. Const and
  // thread-safe.
  void fill(std::span<std::byte> out, size_t tensor, int64_t offset) const;

 private:
  // How one tensor is drawn: values of a mean and a root mean square around it.
  struct Rule {
    uint64_t key = 0;  // of the counter
    double mean = 0;
    double rms = 0;
    int64_t hc_mult = 0;  // > 0: the base of hyper-connection coefficients
  };

  std::vector<ExpectedTensor> tensors_;
  std::vector<Rule> rules_;
};

struct SynthOptions {
  uint64_t seed = 0;
  int64_t max_shard_bytes = int64_t{2} << 30;
  // Called now and then from the calling thread, with payload bytes; false stops: kCancelled, and
  // nothing stays.
  std::function<bool(int64_t done, int64_t total)> progress = {};
  // Looks at the finished folder; where it fails, nothing stays. May be null.
  std::function<Result<void>()> accept = {};
};

// Writes config.json, shards and index into a folder that holds no *.safetensors yet; all of them,
// or none where it fails.
Result<void> write_random_model(const std::string& folder, const ModelConfig& config,
                                const SynthOptions& options, ThreadPool& pool);

}  // namespace fathom
