#include "ops/cuda/attend.h"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/math.cuh"
#include "ops/cuda/tables.cuh"

namespace fathom::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kHeads = 8;   // of a block
constexpr int kSlots = 64;  // of a step of the walk
constexpr int kPad = 16;    // floats after each vector, so that two slots lie in different banks
constexpr float kLowest = -1e30f;

// The list of one row: n_window window slots, holes up to W, then n_ids entries.
struct List {
  int64_t sequence;
  int64_t row;
  int64_t low;  // position of window slot 0
  int64_t n_window;
  int64_t W;
  const int32_t* ids;
  int64_t n_ids;
};

// Slots of a step: [0, window_end) from the window, [first, last) from the chosen entries.
struct Step {
  int window_end;
  int first;
  int last;
  __device__ bool filled(int s) const { return s < window_end || (s >= first && s < last); }
};

__device__ List find_list(const AttendKernelArgs& a, int64_t row) {
  List list;
  list.row = row;
  list.sequence = a.rows.sequence[row];
  list.W = a.window.stream.rows;
  const int64_t position = a.rows.position[row];
  const int64_t lowest = a.rows.sequences[list.sequence].window_low;
  list.low = max(max(lowest, position - list.W + 1), int64_t{0});
  list.n_window = max(position - list.low + 1, int64_t{0});
  list.ids = a.topk == nullptr ? nullptr : a.topk + row * a.topk_stride;
  list.n_ids = 0;
  return list;
}

__device__ void load_window(const AttendKernelArgs& a, const List& list, int64_t slot_index,
                            float* out) {
  const SequenceEntry& sequence = a.rows.sequences[list.sequence];
  const int64_t position = list.low + slot_index;
  const uint8_t* codes;
  const uint8_t* scales;
  if (position < sequence.first_position) {
    codes = payload(a.window, list.sequence, position % list.W);
    scales = scale(a.window, list.sequence, position % list.W);
  } else {
    const int64_t row = sequence.first_row + position - sequence.first_position;
    codes = a.row_codes + row * a.width;
    scales = a.row_scales + row * (a.width / 32);
  }
  for (int64_t i = threadIdx.x % 32; i < a.width; i += 32) {
    out[i] = e4m3_to_float(codes[i]) * e8m0_to_float(scales[i / 32]);
  }
}

__device__ void load_entry(const AttendKernelArgs& a, const List& list, int64_t entry, float* out) {
  const uint8_t* codes = payload(a.global, list.sequence, entry);
  const uint8_t* scales = scale(a.global, list.sequence, entry);
  for (int64_t i = threadIdx.x % 32; i < a.width; i += 32) {
    out[i] = decode_e2m1(codes[i / 2] >> (i % 2 * 4)) * e4m3_to_float(scales[i / 16]);
  }
}

// Shared memory of a block.
struct Room {
  float* v;  // [64, width + kPad]
  float* q;  // [8, width]
  float* acc;
  float* p;  // [64, 8]
  float* factor;
  float* maximum;
  float* denominator;
  int64_t v_stride;

  __device__ Room(float* memory, int64_t width) : v_stride(width + kPad) {
    v = memory;
    q = v + kSlots * v_stride;
    acc = q + kHeads * width;
    p = acc + kHeads * width;
    factor = p + kSlots * kHeads;
    maximum = factor + kHeads;
    denominator = maximum + kHeads;
  }
  static size_t bytes(int64_t width) {
    return sizeof(float) * static_cast<size_t>(kSlots * (width + kPad) + 2 * kHeads * width +
                                               kSlots * kHeads + 3 * kHeads);
  }
};

__device__ void load_step(const AttendKernelArgs& a, const List& list, const Room& m,
                          const Step& step, int64_t slot0) {
  for (int s = threadIdx.x / 32; s < kSlots; s += kThreads / 32) {
    if (!step.filled(s)) continue;
    float* out = m.v + s * m.v_stride;
    if (s < step.window_end) {
      load_window(a, list, slot0 + s, out);
    } else {
      load_entry(a, list, list.ids[slot0 + s - list.W], out);
    }
  }
}

// A half-warp a slot: one product with each head.
__device__ void score_step(const AttendKernelArgs& a, const Room& m, const Step& step) {
  const int j = threadIdx.x % 16;
  for (int s = threadIdx.x / 16; s < kSlots; s += kThreads / 16) {
    float acc[kHeads] = {};
    const bool filled = step.filled(s);
    const float* v = m.v + s * m.v_stride;
    for (int64_t k = j; filled && k < a.width; k += 32) {
      const float2 pair = {v[k], v[k + 16]};
#pragma unroll
      for (int h = 0; h < kHeads; ++h) {
        acc[h] = add_pair(acc[h], {m.q[h * a.width + k], m.q[h * a.width + k + 16]}, pair);
      }
    }
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      const float sum = fold_lanes(acc[h]);
      if (j == 0) m.p[s * kHeads + h] = filled ? sum * a.scale : -INFINITY;
    }
  }
}

// A half-warp a head; lane j holds slots j, j + 16, j + 32, j + 48.
__device__ void softmax_step(const Room& m) {
  const int h = threadIdx.x / 16;
  const int j = threadIdx.x % 16;
  if (h >= kHeads) return;
  float score[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) score[i] = m.p[(j + 16 * i) * kHeads + h];
  float top = score[0];
#pragma unroll
  for (int i = 1; i < 4; ++i) top = score[i] > top ? score[i] : top;
#pragma unroll
  for (int width = 8; width > 0; width /= 2) {
    const float other = __shfl_down_sync(kFullWarp, top, width, 16);
    top = other > top ? other : top;
  }
  top = __shfl_sync(kFullWarp, top, 0, 16);
  const float before = m.maximum[h];
  const float now = top > before ? top : before;
  const float factor = exp_f32(before - now);
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float p = exp_f32(score[i] - now);
    sum += p;
    m.p[(j + 16 * i) * kHeads + h] = round_to_bf16(p);
  }
  sum = fold_lanes(sum);
  __syncwarp();
  if (j != 0) return;
  m.maximum[h] = now;
  m.factor[h] = factor;
  m.denominator[h] = m.denominator[h] * factor + sum;
}

// A thread a channel: all heads over the filled slots in order.
__device__ void accumulate_step(const AttendKernelArgs& a, const Room& m, const Step& step) {
  for (int64_t c = threadIdx.x; c < a.width; c += kThreads) {
    float acc[kHeads];
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      acc[h] = m.acc[h * a.width + c];
      if (m.factor[h] != 1.0f) acc[h] *= m.factor[h];
    }
    for (int s = 0; s < step.last; ++s) {
      if (s == step.window_end && s < step.first) s = step.first;
      const float v = m.v[s * m.v_stride + c];
#pragma unroll
      for (int h = 0; h < kHeads; ++h) acc[h] = __fmaf_rn(m.p[s * kHeads + h], v, acc[h]);
    }
#pragma unroll
    for (int h = 0; h < kHeads; ++h) m.acc[h * a.width + c] = acc[h];
  }
}

__device__ void rotate_tails(const AttendKernelArgs& a, float* heads, int64_t row, float sign) {
  for (int64_t i = threadIdx.x; i < kHeads * a.half; i += kThreads) {
    const int64_t j = i % a.half;
    float* at = heads + i / a.half * a.width + a.width - 2 * a.half + 2 * j;
    const float u = at[0];
    const float v = at[1];
    const float c = a.cos[row * a.half + j];
    const float s = sign * a.sin[row * a.half + j];
    at[0] = round_to_bf16(u * c - v * s);
    at[1] = round_to_bf16(u * s + v * c);
  }
}

__device__ void begin_row(const AttendKernelArgs& a, const Room& m, int64_t row, int64_t h0) {
  for (int64_t i = threadIdx.x; i < kHeads * a.width; i += kThreads) {
    const int64_t h = h0 + i / a.width;
    const int64_t at = (row * a.n_heads + h) * a.width + i % a.width;
    m.q[i] = h < a.n_heads ? bf16_to_float(a.q[at]) : 0.0f;
    m.acc[i] = 0.0f;
  }
  if (threadIdx.x < kHeads) {
    m.maximum[threadIdx.x] = kLowest;
    m.denominator[threadIdx.x] = 0.0f;
  }
  __syncthreads();
  if (a.rotate) rotate_tails(a, m.q, row, 1.0f);
}

__device__ void finish_row(const AttendKernelArgs& a, const Room& m, int64_t row, int64_t h0) {
  for (int64_t i = threadIdx.x; i < kHeads * a.width; i += kThreads) {
    const int64_t h = i / a.width;
    const float sink = h0 + h < a.n_heads ? a.sink[h0 + h] : 0.0f;
    const float total = m.denominator[h] + exp_f32(sink - m.maximum[h]);
    m.acc[i] = round_to_bf16(__fdiv_rn(m.acc[i], total));
  }
  __syncthreads();
  if (a.rotate) rotate_tails(a, m.acc, row, -1.0f);
  __syncthreads();
  for (int64_t i = threadIdx.x; i < kHeads * a.width; i += kThreads) {
    const int64_t h = h0 + i / a.width;
    if (h >= a.n_heads) break;
    a.o[(row * a.n_heads + h) * a.width + i % a.width] = float_to_bf16(m.acc[i]);
  }
}

// Grid: rows x groups of eight heads.
__global__ void __launch_bounds__(kThreads) attend_kernel(const AttendKernelArgs a) {
  enter();
  extern __shared__ float memory[];
  __shared__ int n_ids;
  const int64_t row = blockIdx.x;
  const int64_t h0 = int64_t{blockIdx.y} * kHeads;
  const Room m(memory, a.width);
  List list = find_list(a, row);
  if (threadIdx.x == 0) n_ids = 0;
  begin_row(a, m, row, h0);
  int mine = 0;
  for (int64_t i = threadIdx.x; list.ids != nullptr && i < a.K; i += kThreads) {
    mine += list.ids[i] != -1 ? 1 : 0;
  }
  if (mine > 0) atomicAdd(&n_ids, mine);
  __syncthreads();
  list.n_ids = n_ids;

  const int64_t n_slots = list.W + list.n_ids;
  for (int64_t slot0 = 0; slot0 < n_slots; slot0 += kSlots) {
    const auto clamped = [slot0](int64_t slot) {
      return static_cast<int>(min(max(slot - slot0, int64_t{0}), int64_t{kSlots}));
    };
    Step step;
    step.window_end = clamped(list.n_window);
    step.first = clamped(list.W);
    step.last = clamped(n_slots);
    if (step.first >= step.last) step.first = step.last = step.window_end;
    if (step.last == 0) continue;
    load_step(a, list, m, step, slot0);
    __syncthreads();
    score_step(a, m, step);
    __syncthreads();
    softmax_step(m);
    __syncthreads();
    accumulate_step(a, m, step);
    __syncthreads();
  }
  finish_row(a, m, row, h0);
}

}  // namespace

void launch_attend(const AttendKernelArgs& args, cudaStream_t stream) {
  const size_t bytes = Room::bytes(args.width);
  cudaFuncSetAttribute(attend_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                       static_cast<int>(bytes));
  const dim3 grid(static_cast<unsigned>(args.rows.n_rows),
                  static_cast<unsigned>((args.n_heads + kHeads - 1) / kHeads));
  launch_dependent(attend_kernel, {grid, kThreads, bytes}, args, stream);
}

}  // namespace fathom::cuda
