#include <algorithm>

#include "ops/cpu/cpu_ops.h"

namespace fathom {
namespace {

int32_t best_id(const float* logits, int64_t n) {
  int64_t best = 0;
  for (int64_t i = 1; i < n; ++i) {
    const bool first_number = logits[best] != logits[best] && logits[i] == logits[i];
    if (first_number || logits[i] > logits[best]) best = i;
  }
  return static_cast<int32_t>(best);
}

}  // namespace

void CpuOps::do_greedy(const GreedyArgs& args) {
  for (int64_t row = 0; row < args.logits.dim(0); ++row) {
    const int32_t id = best_id(args.logits.row<float>(row), args.logits.dim(1));
    args.ids.as<int32_t>()[row] = id;
    if (!args.lookback.empty()) {
      int32_t* lookback = args.lookback.row<int32_t>(row);
      const int64_t n_back = args.lookback.dim(1);
      std::copy_backward(lookback, lookback + n_back - 1, lookback + n_back);
      lookback[0] = args.canonical.as<int32_t>()[id];
    }
    if (args.log.empty()) continue;
    int64_t& count = args.count.as<int64_t>()[row];
    if (count < args.log.dim(1)) args.log.row<int32_t>(row)[count++] = id;
  }
}

}  // namespace fathom
