#pragma once

// Attention of few query rows over packed cache rows, read as they lie: 64 heads of 512, window
// rows of 512 E4M3 codes with 16 E8M0 scales, chosen entries of 256 bytes of E2M1 codes with 32
// E4M3 scales (spec/backbone.md 2.2, 5). Order and rounding: spec/backbone.md 3.8.

#include <cuda_runtime.h>

#include <cstdint>

#include "ops/cuda/tables.h"

namespace fathom::cuda {

struct AttendDecode {
  const uint16_t* q = nullptr;  // [rows, 64, 512] bf16, not rotated
  uint16_t* out = nullptr;      // [rows, 64, 512] bf16, rotated back; not aliasing q
  const float* sink = nullptr;  // [64]
  const float* cos = nullptr;   // [rows, 32] of the query position
  const float* sin = nullptr;
  RowTable rows;  // of the step; query row r is row r
  int n_rows = 0;

  const uint8_t* ring = nullptr;       // 128 window rows a slot, position p at row p % 128
  const uint32_t* ring_ids = nullptr;  // [sequence]
  int64_t ring_bytes = 0;              // of a slot
  int64_t ring_codes_at = 0;
  int64_t ring_scales_at = 0;
  const uint8_t* step_codes = nullptr;   // [step rows, 512]
  const uint8_t* step_scales = nullptr;  // [step rows, 16]

  const uint8_t* pool = nullptr;
  const uint32_t* block_ids = nullptr;  // [sequence][block_stride]
  int block_stride = 0;
  int block_rows = 1;  // entries a block
  int64_t block_bytes = 0;
  int64_t block_codes_at = 0;
  int64_t block_scales_at = 0;
  const int* topk = nullptr;  // [n_rows][topk_stride], ascending, -1 after the last; null: none
  int topk_stride = 0;
  int k = 0;            // at most 512
  bool narrow = false;  // without entries, the list has the 128 window slots alone
};

// A cluster of eight blocks a row: each scores 80 of the 640 list slots and then owns 64 of the 512
// value columns, so no sum is split over slots; the ten blocks of 64 slots follow each other with a
// running maximum. The denominator of a block adds the slots 2 t, 2 t + 1 of a group of eight,
// pairs over t by 1 and 2, groups in order. Slots that hold nothing change no bit: a narrow list
// gives what the whole one gives.
cudaError_t attend_decode(const AttendDecode& args, cudaStream_t stream);

}  // namespace fathom::cuda
