#include "ops/cpu/norm.h"

#include "base/math.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/dot.h"
#include "ops/cpu/lanes.h"
#include "ops/cpu/quantize.h"
#include "ops/cpu/scratch.h"

namespace fathom {
namespace cpu {

void rms_norm_row(CpuPath path, const NormRow& args) {
  const float mean = dot(path, args.x, args.x, args.width) / static_cast<float>(args.width);
  const float r = rsqrt(mean + args.eps);
  const float* x = args.x;
  const Bf16* weight = args.weight;
  const int64_t width = args.width;
  float* y = args.y;
  on_path(
      path, [=]() __attribute__((always_inline)) {
        for (int64_t i = 0; i < width; ++i) {
          y[i] = round_to_bf16(bf16_to_float(weight[i]) * (x[i] * r));
        }
      });
}

void store_activation(CpuPath path, const float* values, int64_t row, const Activation& out) {
  narrow(path, values, out.width(), out.bf16.row<Bf16>(row));
  quantize_a8(path, values, out.width(), out.codes.row<uint8_t>(row), out.scales.row<uint8_t>(row));
}

}  // namespace cpu

void CpuOps::do_rms_norm(const RmsNormArgs& args) {
  const int64_t width = args.x.dim(1);
  pool_.parallel_for(args.x.dim(0), cpu::row_grain(width), [&](int64_t begin, int64_t end) {
    struct Row;
    float* x = cpu::scratch<Row>(width);
    for (int64_t row = begin; row < end; ++row) {
      cpu::widen(path_, args.x.row<Bf16>(row), width, x);
      cpu::rms_norm_row(path_, {x, x, args.weight.as<Bf16>(), width, args.eps});
      cpu::store_activation(path_, x, row, args.out);
    }
  });
}

}  // namespace fathom
