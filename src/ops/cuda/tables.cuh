#pragma once

// Where records lie, as tensor/kv_view.h has it.

#include "ops/cuda/tables.h"

namespace fathom::cuda {

__device__ inline uint8_t* record(const BlockTable& t, int64_t sequence, int64_t entry) {
  const uint32_t id = t.ids[sequence * t.stride + entry / t.stream.rows];
  return t.base + static_cast<int64_t>(id) * t.block_bytes;
}
__device__ inline uint8_t* payload(const BlockTable& t, int64_t sequence, int64_t entry) {
  return record(t, sequence, entry) + t.stream.payload_offset +
         entry % t.stream.rows * t.stream.payload_bytes;
}
__device__ inline uint8_t* scale(const BlockTable& t, int64_t sequence, int64_t entry) {
  return record(t, sequence, entry) + t.stream.scale_offset +
         entry % t.stream.rows * t.stream.scale_bytes;
}

__device__ inline uint8_t* slot(const SlotTable& t, int64_t sequence) {
  return t.base + static_cast<int64_t>(t.ids[sequence]) * t.slot_bytes;
}
__device__ inline uint8_t* payload(const SlotTable& t, int64_t sequence, int64_t row) {
  return slot(t, sequence) + t.stream.payload_offset + row * t.stream.payload_bytes;
}
__device__ inline uint8_t* scale(const SlotTable& t, int64_t sequence, int64_t row) {
  return slot(t, sequence) + t.stream.scale_offset + row * t.stream.scale_bytes;
}

}  // namespace fathom::cuda
