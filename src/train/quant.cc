#include "train/quant.h"

#include <torch/csrc/autograd/custom_function.h>

#include "base/check.h"

#ifdef FATHOM_TRAIN_CUDA
#include "train/kernels.h"
#endif

namespace fathom::train {

namespace {

using at::Tensor;

constexpr float kInv448 = 0x1.24924ap-9F;  // fp32(1 / 448)
constexpr float kInv6 = 0x1.555556p-3F;    // fp32(1 / 6)

// 2^ceil(log2 t) from the bits of fp32 t > 0.
Tensor pow2ceil(const Tensor& t) {
  const Tensor bits = t.contiguous().view(at::kInt);
  const Tensor carry = bits.bitwise_and(0x7FFFFF).ne(0).to(at::kInt);
  return (bits.bitwise_right_shift(23) + carry).bitwise_left_shift(23).view(at::kFloat);
}

Tensor round_e4m3(const Tensor& v) {
  return v.clamp(-448, 448).to(at::kFloat8_e4m3fn).to(at::kFloat);
}

// Magnitude codes 0..7 by the thresholds of spec/backbone.md 2.1.
Tensor e2m1_magnitude(const Tensor& size) {
  Tensor code = size.gt(0.25).to(at::kByte);
  code += size.ge(0.75).to(at::kByte);
  code += size.gt(1.25).to(at::kByte);
  code += size.ge(1.75).to(at::kByte);
  code += size.gt(2.5).to(at::kByte);
  code += size.ge(3.5).to(at::kByte);
  code += size.gt(5.0).to(at::kByte);
  return code;
}

Tensor round_e2m1(const Tensor& v) {
  const Tensor size = v.abs().clamp_max(6);
  const Tensor step = at::where(size.lt(2), 0.5, at::where(size.lt(4), 1.0, 2.0)).to(at::kFloat);
  return at::copysign((size / step).round() * step, v);
}

Tensor quant_blocks(const Tensor& x, Quant kind) {
  const int64_t block = kind == Quant::kKv4 ? 16 : 32;
  FATHOM_CHECK(x.size(-1) % block == 0);
  const Tensor v = x.to(at::kFloat).contiguous().view({-1, block});
  const Tensor top = v.abs().amax(1, true);
  if (kind == Quant::kA8) {
    const Tensor s = pow2ceil(top.clamp_min(1e-4F) * kInv448);
    return (round_e4m3(v / s) * s).view(x.sizes());
  }
  if (kind == Quant::kIdx4) {
    const Tensor s = pow2ceil(top.clamp_min(0x1.8p-124) * kInv6);
    return (round_e2m1(v / s) * s).view(x.sizes());
  }
  const Tensor s = round_e4m3(top.clamp_min(6 * 0x1p-9) / 6);
  return (round_e2m1(v / s) * s).view(x.sizes());
}

class FakeQuantFn : public torch::autograd::Function<FakeQuantFn> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* /*context*/, const Tensor& x,
                        int64_t kind) {
#ifdef FATHOM_TRAIN_CUDA
    if (x.is_cuda() && x.scalar_type() == at::kBFloat16) {
      const Tensor in = x.contiguous();
      Tensor out = at::empty_like(in);
      gpu::fake_quant(static_cast<int>(kind), static_cast<const uint16_t*>(in.const_data_ptr()),
                      static_cast<uint16_t*>(out.mutable_data_ptr()), in.numel(), nullptr);
      return out;
    }
#endif
    return quant_blocks(x, static_cast<Quant>(kind)).to(x.scalar_type());
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* /*context*/,
                                                 torch::autograd::variable_list grads) {
    return {grads[0], Tensor()};
  }
};

// E8M0 byte of 2^k from the bits of the float.
Tensor e8m0_byte(const Tensor& s) {
  return s.contiguous().view(at::kInt).bitwise_right_shift(23).to(at::kByte);
}

Coded coded_fp8(const Tensor& blocks, const Tensor& s, const at::IntArrayRef& shape) {
  const Tensor codes = (blocks / s).clamp(-448, 448).to(at::kFloat8_e4m3fn);
  Coded out;
  out.value = (codes.to(at::kFloat) * s).reshape(shape);
  out.codes = codes.view(at::kByte);
  out.scales = e8m0_byte(s);
  return out;
}

}  // namespace

Tensor fake_quant(const Tensor& x, Quant kind) {
  return FakeQuantFn::apply(x, static_cast<int64_t>(kind));
}

Coded quant_fp8_matrix(const Tensor& w) {
  const int64_t rows = w.size(0);
  const int64_t columns = w.size(1);
  const int64_t high = (rows + 31) / 32;
  const int64_t wide = (columns + 31) / 32;
  Tensor full = at::zeros({high * 32, wide * 32}, w.options().dtype(at::kFloat));
  full.narrow(0, 0, rows).narrow(1, 0, columns).copy_(w);
  const Tensor blocks = full.view({high, 32, wide, 32});
  const Tensor top = blocks.abs().amax({1, 3}, true);
  const Tensor s = pow2ceil(top.clamp_min(1e-10F) * kInv448);
  Coded out = coded_fp8(blocks, s, {high * 32, wide * 32});
  out.codes = out.codes.reshape({high * 32, wide * 32});
  out.codes = out.codes.narrow(0, 0, rows).narrow(1, 0, columns).contiguous();
  out.value = out.value.narrow(0, 0, rows).narrow(1, 0, columns).contiguous();
  out.scales = out.scales.view({high, wide});
  return out;
}

Coded quant_fp8_rows(const Tensor& w) {
  auto shape = w.sizes().vec();
  const Tensor blocks = w.to(at::kFloat).contiguous().view({-1, 32});
  const Tensor s = pow2ceil(blocks.abs().amax(1, true).clamp_min(1e-10F) * kInv448);
  Coded out = coded_fp8(blocks, s, shape);
  out.codes = out.codes.reshape(shape);
  shape.back() /= 32;
  out.scales = out.scales.reshape(shape);
  return out;
}

Coded quant_fp4_rows(const Tensor& w) {
  auto shape = w.sizes().vec();
  const Tensor blocks = w.to(at::kFloat).contiguous().view({-1, 32});
  const Tensor s = pow2ceil(blocks.abs().amax(1, true).clamp_min(1e-10F) * kInv6);
  const Tensor scaled = (blocks / s).clamp(-6, 6);
  Coded out;
  out.codes = e2m1_magnitude(scaled.abs()) + at::signbit(scaled).to(at::kByte) * 8;
  out.value = (e2m1_value(out.codes) * s).reshape(shape);
  out.codes = out.codes.reshape(shape);
  shape.back() /= 32;
  out.scales = e8m0_byte(s).reshape(shape);
  return out;
}

Tensor e8m0_value(const Tensor& bytes) {
  return bytes.to(at::kInt).bitwise_left_shift(23).view(at::kFloat);
}

Tensor e2m1_value(const Tensor& codes) {
  const Tensor table = at::tensor({0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F, -0.0F, -0.5F,
                                   -1.0F, -1.5F, -2.0F, -3.0F, -4.0F, -6.0F})
                           .to(codes.device());
  return table.index_select(0, codes.reshape({-1}).to(at::kLong)).view(codes.sizes());
}

}  // namespace fathom::train
