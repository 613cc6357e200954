#include "ops/cpu/linear.h"

#include <algorithm>

#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/dot.h"
#include "ops/cpu/quantize.h"

namespace fathom {

void CpuOps::do_linear(const LinearArgs& args) { cpu::linear(context(), args); }

void CpuOps::do_grouped_linear(const GroupedLinearArgs& args) {
  cpu::grouped_linear(context(), args);
}

namespace cpu {
namespace {

// Places in Scratch.
constexpr size_t kRowsPlace = 0;

}  // namespace

int64_t output_grain(int64_t n_rows, int64_t K) {
  // About 10 microseconds of one thread; handing a range out costs a tenth of that.
  constexpr int64_t kProducts = 1 << 17;
  return std::max<int64_t>(1, kProducts / std::max<int64_t>(1, 32 * n_rows * K));
}

void expand_all_rows(const Context& context, const Activation& x, WeightFormat format, float* out) {
  const int64_t K = padded_width(x.width());
  const int64_t grain = std::max<int64_t>(1, 32768 / std::max<int64_t>(1, K));
  context.pool.parallel_for(x.n_rows(), grain, [&](int64_t begin, int64_t end) {
    expand_rows(x, format, begin, end, out + begin * K);
  });
}

void linear(const Context& context, const LinearArgs& args) {
  const int64_t n_rows = args.x.n_rows();
  const int64_t K = padded_width(args.w.in());
  const int64_t O = args.w.out();
  if (n_rows == 0 || O == 0) return;
  float* x = context.scratch.get<float>(kRowsPlace, n_rows * K);
  expand_all_rows(context, args.x, args.w.format, x);

  const int64_t units = (O + 31) / 32;
  context.pool.parallel_for(units, output_grain(n_rows, K), [&](int64_t begin, int64_t end) {
    MatmulArgs m;
    m.o_begin = begin * 32;
    m.o_end = std::min(end * 32, O);
    if (args.out.dtype == DType::kF32) {
      m.out = args.out.as<float>() + m.o_begin;
    } else {
      m.out_bf16 = args.out.as<Bf16>() + m.o_begin;
    }
    m.out_stride = args.out.stride[0];
    m.x = x;
    m.n_rows = n_rows;
    m.w = &args.w;
    matmul(context.path, m);
  });
}

void grouped_linear(const Context& context, const GroupedLinearArgs& args) {
  const int64_t n_rows = args.x.dim(0);
  const int64_t I = args.w.in();
  const int64_t K = padded_width(I);
  const int64_t O = args.w.out();
  const int64_t R = O / args.groups;
  if (n_rows == 0 || O == 0) return;

  // Group g of row r stands at (g n_rows + r) K, so that one group is one matrix.
  float* x = context.scratch.get<float>(kRowsPlace, args.groups * n_rows * K);
  context.pool.parallel_for(args.groups * n_rows, 8, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Bf16* from = args.x.row<const Bf16>(i % n_rows) + i / n_rows * I;
      float* to = x + i * K;
      for (int64_t k = 0; k < I; ++k) to[k] = bf16_to_float(from[k]);
      for (int64_t k = I; k < K; ++k) to[k] = 0.0f;
    }
  });

  const int64_t units = (O + 31) / 32;
  context.pool.parallel_for(units, output_grain(n_rows, K), [&](int64_t begin, int64_t end) {
    const int64_t o_end = std::min(end * 32, O);
    for (int64_t o = begin * 32; o < o_end;) {
      const int64_t group = o / R;
      MatmulArgs m;
      m.o_begin = o;
      m.o_end = std::min(o_end, (group + 1) * R);
      m.out_bf16 = args.out.bf16.as<Bf16>() + o;
      m.out_stride = args.out.bf16.stride[0];
      m.x = x + group * n_rows * K;
      m.n_rows = n_rows;
      m.w = &args.w;
      matmul(context.path, m);
      o = m.o_end;
    }
    // The range is whole blocks of 32 outputs: its A8 form can be made while it is warm.
    float values[32];
    for (int64_t r = 0; r < n_rows; ++r) {
      const Bf16* from = args.out.bf16.row<const Bf16>(r);
      for (int64_t o = begin * 32; o < o_end; o += 32) {
        for (int64_t j = 0; j < 32; ++j) values[j] = bf16_to_float(from[o + j]);
        quantize_a8(context.path, values, 32, args.out.codes.row<uint8_t>(r) + o,
                    args.out.scales.row<uint8_t>(r) + o / 32);
      }
    }
  });
}

}  // namespace cpu
}  // namespace fathom
