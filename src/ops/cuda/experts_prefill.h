#pragma once

// The routed experts of a step with many rows an expert, with the bits of experts_decode: the same
// packed weights, steps of 32 columns and units in the same order.

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "ops/cuda/dense_prefill.h"
#include "ops/cuda/experts_decode.h"

namespace fathom::cuda {

// Up to 128 pairs of one expert, which follow each other.
struct ExpertTile {
  int expert = 0;
  int first = 0;
  int count = 0;
};

struct ExpertsPrefill {
  ExpertsDecode product;        // `settled`, `max_active` and `columns` are not read
  int pairs = 0;                // rows k
  ExpertTile* tiles = nullptr;  // [most_tiles]
  int* n_tiles = nullptr;       // [1]
  uint8_t* pieces = nullptr;    // piece_bytes, 128-byte aligned

  int most_tiles() const { return most_tiles(pairs, product.experts); }
  static constexpr int most_tiles(int pairs, int experts) {
    return pairs / kStagedRows + std::min(pairs, experts);
  }
  // Of rows as wide as the wider of the two products.
  static constexpr size_t piece_bytes(int pairs, int experts, int k) {
    return static_cast<size_t>(most_tiles(pairs, experts)) * (k / 128) * kStagedPieceBytes;
  }
};

// In place of experts_gate_up and experts_down.
cudaError_t experts_prefill(const ExpertsPrefill& args, cudaStream_t stream);

}  // namespace fathom::cuda
