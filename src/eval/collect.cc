#include "eval/collect.h"

#include <cstring>

#include "tensor/codecs.h"

namespace fathom {
namespace {

double element(const Tensor& t, int64_t i) {
  const auto at = static_cast<size_t>(i);
  switch (t.dtype) {
    case DType::kBf16:
      return bf16_to_float(static_cast<const Bf16*>(t.data)[at]);
    case DType::kF32:
      return static_cast<const float*>(t.data)[at];
    case DType::kE4m3:
      return e4m3_to_float(static_cast<const uint8_t*>(t.data)[at]);
    case DType::kE8m0:
      return e8m0_to_float(static_cast<const uint8_t*>(t.data)[at]);
    case DType::kI8:
    case DType::kU8:
      return static_cast<const uint8_t*>(t.data)[at];
    case DType::kI32:
      return static_cast<const int32_t*>(t.data)[at];
    case DType::kI64:
      return static_cast<double>(static_cast<const int64_t*>(t.data)[at]);
  }
  return 0;
}

}  // namespace

std::vector<double> to_numbers(const Tensor& t) {
  FATHOM_CHECK(t.is_dense());
  std::vector<double> numbers(static_cast<size_t>(t.elements()));
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = element(t, static_cast<int64_t>(i));
  return numbers;
}

void CollectingProbe::value(const std::string& name, const Tensor& tensor) {
  if (wanted_(name)) values_[name] = to_numbers(tensor);
  const auto forced = forced_.find(name);
  if (forced == forced_.end()) return;
  if (forced->second.bytes() != tensor.bytes()) {
    misfits_.push_back(name);
    return;
  }
  std::memcpy(tensor.data, forced->second.data, static_cast<size_t>(tensor.bytes()));
}

}  // namespace fathom
