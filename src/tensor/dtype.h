#pragma once

// Element types of tensors in memory and in files.

#include <cstdint>
#include <string_view>

namespace fathom {

enum class DType : uint8_t {
  kBf16,
  kF32,
  kE4m3,  // 8-bit float, 1-4-3, no infinities
  kE8m0,  // a power of two, 2^(byte - 127); 255 is NaN
  kI8,    // two E2M1 codes a byte: low nibble = even element, high nibble = odd element
  kU8,
  kI32,
  kI64,
};

constexpr int64_t dtype_bytes(DType dtype) {
  switch (dtype) {
    case DType::kI64:
      return 8;
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kBf16:
      return 2;
    case DType::kE4m3:
    case DType::kE8m0:
    case DType::kI8:
    case DType::kU8:
      return 1;
  }
  return 0;
}

// The names that safetensors files use: BF16, F32, F8_E4M3, F8_E8M0, I8, U8, I32, I64.
constexpr std::string_view dtype_name(DType dtype) {
  switch (dtype) {
    case DType::kBf16:
      return "BF16";
    case DType::kF32:
      return "F32";
    case DType::kE4m3:
      return "F8_E4M3";
    case DType::kE8m0:
      return "F8_E8M0";
    case DType::kI8:
      return "I8";
    case DType::kU8:
      return "U8";
    case DType::kI32:
      return "I32";
    case DType::kI64:
      return "I64";
  }
  return "?";
}

}  // namespace fathom
