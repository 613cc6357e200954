#include "base/math.h"
#include "ops/cpu/rope.h"

namespace fathom::cpu {

void rotation_at(int64_t position, const float* inv_freq, int64_t half, float* cos, float* sin) {
  const auto p = static_cast<float>(position);
  for (int64_t j = 0; j < half; ++j) sincos_f32(p * inv_freq[j], sin + j, cos + j);
}

}  // namespace fathom::cpu
