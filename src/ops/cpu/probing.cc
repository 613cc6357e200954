#include "ops/cpu/probing.h"

#include "tensor/codecs.h"

namespace fathom::cpu {

void show_rounded(Ops& ops, const char* name, float* values, std::initializer_list<int64_t> shape) {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  const Buffer buffer(count * dtype_bytes(DType::kBf16));
  const Tensor view = Tensor::dense(buffer.data(), DType::kBf16, shape);
  for (int64_t i = 0; i < count; ++i) view.as<Bf16>()[i] = float_to_bf16(values[i]);
  ops.show(name, view);
  for (int64_t i = 0; i < count; ++i) values[i] = bf16_to_float(view.as<Bf16>()[i]);
}

void show_f32(Ops& ops, const char* name, float* values, std::initializer_list<int64_t> shape) {
  ops.show(name, Tensor::dense(values, DType::kF32, shape));
}

}  // namespace fathom::cpu
