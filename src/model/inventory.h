#pragma once

// Every tensor that a model of a given configuration has: the one enumeration that loading,
// checking, writing and counting share. Names and shapes: spec/backbone.md 6.2, spec/dspark.md 5,
// spec/vision.md 5, spec/engram.md 6.

#include <cstdint>
#include <vector>

#include "checkpoint/expected.h"
#include "model/config.h"

namespace fathom {

// In the order of a forward pass: embedding, layers, final norm and head, drafter, vision.
std::vector<ExpectedTensor> expected_tensors(const ModelConfig& config);

struct InventoryTotals {
  int64_t tensors = 0;
  int64_t payload_bytes = 0;
  int64_t parameters = 0;  // scales are none; a byte of packed FP4 is two

  InventoryTotals& operator+=(const ExpectedTensor& tensor);
  bool operator==(const InventoryTotals&) const = default;
};

InventoryTotals inventory_totals(const std::vector<ExpectedTensor>& tensors);

}  // namespace fathom
