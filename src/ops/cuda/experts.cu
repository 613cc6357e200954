#include "ops/cuda/experts.h"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/math.cuh"

namespace fathom::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kGroupThreads = 512;

// One block: a thread counts and places the slots of an expert, in order of rows.
__global__ void __launch_bounds__(kGroupThreads) group_kernel(const GroupArgs a) {
  enter();
  extern __shared__ int32_t memory[];
  int32_t* slots = memory;                    // [E + 1] slots before each expert
  int32_t* tiles = memory + a.n_experts + 1;  // [E + 1] tiles before each expert
  const int64_t n_choices = a.n_rows * a.k;
  for (int64_t e = threadIdx.x; e < a.n_experts; e += kGroupThreads) {
    int n = 0;
    for (int64_t c = 0; c < n_choices; ++c) n += a.ids[c / a.k * a.id_stride + c % a.k] == e;
    slots[e + 1] = n;
    tiles[e + 1] = (n + kTileRows - 1) / kTileRows;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    slots[0] = tiles[0] = 0;
    for (int64_t e = 0; e < a.n_experts; ++e) {
      slots[e + 1] += slots[e];
      tiles[e + 1] += tiles[e];
    }
  }
  __syncthreads();
  for (int64_t e = threadIdx.x; e < a.n_experts; e += kGroupThreads) {
    int32_t slot = slots[e];
    for (int64_t c = 0; c < n_choices && slot < slots[e + 1]; ++c) {
      const int64_t row = c / a.k;
      if (a.ids[row * a.id_stride + c % a.k] != e) continue;
      a.slot_row[slot] = static_cast<int32_t>(row);
      a.slot_weight[slot] = a.weights[row * a.weight_stride + c % a.k];
      a.slot_of[c] = slot++;
    }
    for (int32_t t = tiles[e]; t < tiles[e + 1]; ++t) {
      const int32_t begin = slots[e] + (t - tiles[e]) * kTileRows;
      a.tiles[t] = {static_cast<int32_t>(e), begin, min(begin + kTileRows, slots[e + 1])};
    }
  }
  for (int64_t t = tiles[a.n_experts] + static_cast<int64_t>(threadIdx.x); t < a.max_tiles;
       t += kGroupThreads) {
    a.tiles[t] = {0, 0, 0};
  }
}

__global__ void __launch_bounds__(kThreads) swiglu_kernel(const SwigluArgs a) {
  enter();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= a.n * a.width) return;  // whole warps where codes are made
  float g = bf16_to_float(a.gate[i]);
  float u = bf16_to_float(a.up[i]);
  if (a.limit > 0.0f) {
    g = a.limit < g ? a.limit : g;
    u = u < -a.limit ? -a.limit : (a.limit < u ? a.limit : u);
  }
  const float silu = g * sigmoid(g);
  const float weight = a.weight != nullptr ? a.weight[i / a.width] : 1.0f;
  const float value = round_to_bf16(weight * (silu * u));
  a.out[i] = float_to_bf16(value);
  if (a.codes == nullptr) return;
  const A8Code q = quantize_a8(value);
  a.codes[i] = q.code;
  if (i % 32 == 0) a.scales[i / 32] = q.scale;
}

// Grid: a row each.
__global__ void __launch_bounds__(kThreads) combine_kernel(const CombineArgs a) {
  enter();
  __shared__ int32_t slots[kMaxChosen];
  const int64_t row = blockIdx.x;
  if (threadIdx.x == 0) {
    // Slots are ordered by expert, so ascending slots are increasing ids.
    for (int i = 0; i < a.k; ++i) {
      int at = i;
      const int32_t slot = a.slot_of[row * a.k + i];
      for (; at > 0 && slots[at - 1] > slot; --at) slots[at] = slots[at - 1];
      slots[at] = slot;
    }
  }
  __syncthreads();
  for (int64_t d = threadIdx.x; d < a.hidden; d += kThreads) {
    float sum = 0;
    for (int i = 0; i < a.k; ++i) sum = sum + bf16_to_float(a.routed[slots[i] * a.hidden + d]);
    a.y[row * a.y_stride + d] = float_to_bf16(sum + bf16_to_float(a.shared[row * a.hidden + d]));
  }
}

}  // namespace

void launch_group(const GroupArgs& args, cudaStream_t stream) {
  const auto bytes = static_cast<size_t>(2 * (args.n_experts + 1)) * sizeof(int32_t);
  launch_dependent(group_kernel, {1, kGroupThreads, bytes}, args, stream);
}

void launch_swiglu(const SwigluArgs& args, cudaStream_t stream) {
  const int64_t n = args.n * args.width;
  if (n == 0) return;
  const auto blocks = static_cast<unsigned>((n + kThreads - 1) / kThreads);
  launch_dependent(swiglu_kernel, {blocks, kThreads}, args, stream);
}

void launch_combine(const CombineArgs& args, cudaStream_t stream) {
  launch_dependent(combine_kernel, {static_cast<unsigned>(args.n_rows), kThreads}, args, stream);
}

}  // namespace fathom::cuda
