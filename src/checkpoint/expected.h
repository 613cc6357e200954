#pragma once

// What a reader of a checkpoint expects of one tensor. The model enumerates these; the checkpoint
// compares them with the files and knows no model.

#include <cstdint>
#include <string>
#include <vector>

#include "tensor/dtype.h"

namespace fathom {

struct ExpectedTensor {
  std::string name;
  DType dtype = DType::kBf16;
  std::vector<int64_t> shape;  // at most kMaxRank dimensions

  int64_t elements() const {
    int64_t n = 1;
    for (const int64_t d : shape) n *= d;
    return n;
  }
  int64_t bytes() const { return elements() * dtype_bytes(dtype); }
  bool operator==(const ExpectedTensor&) const = default;
};

}  // namespace fathom
