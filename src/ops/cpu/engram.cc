#include "ops/cpu/engram.h"

#include <cmath>

#include "base/math.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/dot.h"
#include "ops/cpu/lanes.h"
#include "ops/cpu/probing.h"
#include "ops/cpu/quantize.h"
#include "ops/cpu/scratch.h"
#include "ops/engram_rows.h"

namespace fathom {
namespace cpu {

float engram_gate_row(CpuPath path, const EngramGateRow& args) {
  const EngramGateRow a = args;
  on_path(
      path, [=]() __attribute__((always_inline)) {
        for (int64_t i = 0; i < a.hidden; ++i) {
          a.weighted[i] = a.h[i] * (bf16_to_float(a.q_weight[i]) * bf16_to_float(a.k_weight[i]));
        }
      });
  const auto width = static_cast<float>(a.hidden);
  const float r = rsqrt(dot(path, a.h, a.h, a.hidden) / width + a.eps) *
                  rsqrt(dot(path, a.key, a.key, a.hidden) / width + a.eps);
  const auto inverse_root = static_cast<float>(1.0 / std::sqrt(static_cast<double>(a.hidden)));
  const float d = dot(path, a.weighted, a.key, a.hidden) * r * inverse_root;
  const float magnitude = std::fabs(d) > 1e-6f ? std::fabs(d) : 1e-6f;
  return sigmoid(std::copysign(std::sqrt(magnitude), d));
}

namespace {

struct MixPass {
  CpuPath path;
  const EngramMixArgs& args;

  int64_t n() const { return args.residual.dim(1); }
  int64_t hidden() const { return args.residual.dim(2); }

  // gates: [end - begin, n]
  void gate(int64_t begin, int64_t end, float* gates) const {
    struct Work;
    const int64_t D = hidden();
    float* work = scratch<Work>(3 * D);
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t s = 0; s < n(); ++s) {
        widen(path, args.residual.row<Bf16>(row) + s * D, D, work);
        widen(path, args.kv.row<Bf16>(row) + s * D, D, work + D);
        gates[(row - begin) * n() + s] =
            engram_gate_row(path, {work, work + D, args.q_weight.row<Bf16>(s),
                                   args.k_weight.row<Bf16>(s), work + 2 * D, D, args.eps});
      }
    }
  }

  void mix(int64_t begin, int64_t end, const float* gates) const {
    const int64_t D = hidden();
    for (int64_t row = begin; row < end; ++row) {
      if (!args.dead.empty() && args.dead.as<uint8_t>()[row] != 0) continue;
      const Bf16* value = args.kv.row<Bf16>(row) + n() * D;
      for (int64_t s = 0; s < n(); ++s) {
        Bf16* h = args.residual.row<Bf16>(row) + s * D;
        const float g = gates[(row - begin) * n() + s];
        on_path(
            path, [=]() __attribute__((always_inline)) {
              for (int64_t i = 0; i < D; ++i) {
                h[i] = float_to_bf16(bf16_to_float(h[i]) + g * bf16_to_float(value[i]));
              }
            });
      }
    }
  }
};

void gather_row(CpuPath path, const EngramGatherArgs& args, int64_t row) {
  struct Row;
  const int64_t columns = args.rows.dim(1);
  const int64_t width = args.table.dim(1);
  float* values = scratch<Row>(width);
  Bf16* out = args.out.bf16.row<Bf16>(row);
  for (int64_t c = 0; c < columns; ++c) {
    const int64_t id = args.rows.row<int64_t>(row)[c];
    FATHOM_CHECK(id >= 0 && id < args.table.dim(0));
    dequantize_a8(path, args.table.row<uint8_t>(id), args.scales.row<uint8_t>(id), width, values);
    for (int64_t i = 0; i < width; ++i) out[c * width + i] = float_to_bf16(values[i]);
  }
}

// The values are quantised again: exact, except in blocks whose largest value is below 1e-4.
void requantize_row(CpuPath path, const EngramGatherArgs& args, int64_t row) {
  struct Row;
  const int64_t width = args.out.width();
  float* values = scratch<Row>(width);
  widen(path, args.out.bf16.row<Bf16>(row), width, values);
  quantize_a8(path, values, width, args.out.codes.row<uint8_t>(row),
              args.out.scales.row<uint8_t>(row));
}

}  // namespace
}  // namespace cpu

void CpuOps::do_engram_rows(const EngramRowsArgs& args) {
  const int64_t n_back = args.lookback.dim(1);
  const EngramColumns columns = {.primes = args.primes.as<int64_t>(),
                                 .offsets = args.offsets.as<int64_t>(),
                                 .multipliers = args.multipliers.as<int64_t>(),
                                 .n_back = n_back,
                                 .n_heads = args.rows.dim(1) / (n_back - 1),
                                 .pad = args.pad};
  for (int64_t row = 0; row < args.rows.dim(0); ++row) {
    engram_row_numbers(columns, args.lookback.row<int32_t>(row), args.rows.row<int64_t>(row));
  }
}

void CpuOps::do_engram_gather(const EngramGatherArgs& args) {
  const int64_t n_rows = args.rows.dim(0);
  const int64_t width = args.table.dim(1);
  const int64_t grain = cpu::row_grain(args.out.width());
  if (!probing()) {
    pool_.parallel_for(n_rows, grain, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        cpu::gather_row(path_, args, row);
        cpu::requantize_row(path_, args, row);
      }
    });
    return;
  }
  for (int64_t row = 0; row < n_rows; ++row) cpu::gather_row(path_, args, row);
  show("engram.lookup",
       Tensor::dense(args.out.bf16.data, DType::kBf16, {n_rows, args.rows.dim(1), width}));
  for (int64_t row = 0; row < n_rows; ++row) cpu::requantize_row(path_, args, row);
}

void CpuOps::do_engram_mix(const EngramMixArgs& args) {
  const int64_t n_rows = args.residual.dim(0);
  const int64_t n = args.residual.dim(1);
  const cpu::MixPass pass = {path_, args};
  if (probing()) {
    const Buffer gates(n_rows * n * dtype_bytes(DType::kF32));
    float* values = reinterpret_cast<float*>(gates.data());
    pass.gate(0, n_rows, values);
    cpu::show_f32(*this, "engram.gate", values, {n_rows, n});
    pass.mix(0, n_rows, values);
    return;
  }
  const int64_t grain = cpu::row_grain(4 * n * args.residual.dim(2));
  pool_.parallel_for(n_rows, grain, [&](int64_t begin, int64_t end) {
    struct Gates;
    float* gates = cpu::scratch<Gates>((end - begin) * n);
    pass.gate(begin, end, gates);
    pass.mix(begin, end, gates);
  });
}

}  // namespace fathom
