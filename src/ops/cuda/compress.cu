#include "ops/cuda/compress.h"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/math.cuh"
#include "ops/cuda/tables.cuh"

namespace fathom::cuda {
namespace {

constexpr int kThreads = 256;

unsigned blocks_for(int64_t n) { return static_cast<unsigned>((n + kThreads - 1) / kThreads); }

// Channel d of a or z of a token of a group: of this step, or kept from an earlier one.
__device__ float token_value(const CompressKernelArgs& a, const Group& g, int64_t i, bool gate,
                             int64_t d) {
  const SequenceEntry& sequence = a.rows.sequences[g.sequence];
  const int64_t position = g.entry * a.ratio + i;
  if (position < sequence.first_position) {
    const uint8_t* kept = payload(a.remainder, g.sequence, 2 * i + (gate ? 1 : 0));
    return reinterpret_cast<const float*>(kept)[d];
  }
  const int64_t row = sequence.first_row + position - sequence.first_position;
  return (gate ? a.z : a.a)[row * a.width + d];
}

__global__ void __launch_bounds__(kThreads) groups_kernel(const StepGroups a) {
  enter();
  const int64_t s = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (s >= a.rows.n_sequences) return;
  const SequenceEntry& sequence = a.rows.sequences[s];
  const int64_t end = sequence.first_position + sequence.n_rows;
  const bool complete = end % a.ratio == 0;
  a.groups[s] = {s, complete ? end / a.ratio - 1 : -1};
  a.positions[s] = complete ? end - a.ratio : 0;
}

__global__ void __launch_bounds__(kThreads) pool_kernel(const CompressKernelArgs a) {
  enter();
  const int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (at >= a.n_groups * a.width) return;
  const Group g = a.groups[at / a.width];
  const int64_t d = at % a.width;
  if (g.entry < 0) return;
  if (a.ratio == 1) {
    a.c[at] = float_to_bf16(token_value(a, g, 0, false, d));
    return;
  }
  float top = token_value(a, g, 0, true, d);
  for (int64_t i = 1; i < a.ratio; ++i) {
    const float z = token_value(a, g, i, true, d);
    top = z > top ? z : top;
  }
  float total = 0;
  for (int64_t i = 0; i < a.ratio; ++i) total += exp_f32(token_value(a, g, i, true, d) - top);
  float sum = 0;
  for (int64_t i = 0; i < a.ratio; ++i) {
    const float p = __fdiv_rn(exp_f32(token_value(a, g, i, true, d) - top), total);
    sum += p * token_value(a, g, i, false, d);
  }
  a.c[at] = float_to_bf16(sum);
}

__global__ void __launch_bounds__(kThreads) write_keys_kernel(const CompressKernelArgs a) {
  enter();
  const int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (at >= a.n_groups * a.index_width) return;  // whole warps
  const Group g = a.groups[at / a.index_width];
  const int64_t d = at % a.index_width;
  if (g.entry < 0) return;
  const A8Code q = quantize_idx4(bf16_to_float(a.keys[at]));
  const uint8_t packed = pack_pair(q.code);
  if (d % 2 == 0) payload(a.index, g.sequence, g.entry)[d / 2] = packed;
  if (d % 32 == 0) scale(a.index, g.sequence, g.entry)[d / 32] = q.scale;
}

__global__ void __launch_bounds__(kThreads) write_entries_kernel(const CompressKernelArgs a) {
  enter();
  const int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (at >= a.n_groups * a.width) return;  // whole warps
  const Group g = a.groups[at / a.width];
  const int64_t d = at % a.width;
  if (g.entry < 0) return;
  const A8Code q = quantize_kv4(bf16_to_float(a.c[at]));
  const uint8_t packed = pack_pair(q.code);
  if (d % 2 == 0) payload(a.main, g.sequence, g.entry)[d / 2] = packed;
  if (d % 16 == 0) scale(a.main, g.sequence, g.entry)[d / 16] = q.scale;
}

// A thread a channel of a row of the step.
__global__ void __launch_bounds__(kThreads) remainder_kernel(const CompressKernelArgs a) {
  enter();
  const int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (at >= a.rows.n_rows * a.width) return;
  const int64_t row = at / a.width;
  const int64_t d = at % a.width;
  const int64_t s = a.rows.sequence[row];
  const SequenceEntry& sequence = a.rows.sequences[s];
  const int64_t end = sequence.first_position + sequence.n_rows;
  const int64_t i = a.rows.position[row] - end / a.ratio * a.ratio;
  if (i < 0) return;
  reinterpret_cast<float*>(payload(a.remainder, s, 2 * i))[d] = a.a[at];
  reinterpret_cast<float*>(payload(a.remainder, s, 2 * i + 1))[d] = a.z[at];
}

__global__ void __launch_bounds__(kThreads) read_entries_kernel(const CompressKernelArgs a) {
  enter();
  const int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (at >= a.n_groups * a.width) return;
  const Group g = a.groups[at / a.width];
  const int64_t d = at % a.width;
  const uint8_t code = payload(a.main, g.sequence, g.entry)[d / 2] >> (d % 2 * 4);
  const float s = e4m3_to_float(scale(a.main, g.sequence, g.entry)[d / 16]);
  a.c[at] = float_to_bf16(decode_e2m1(code) * s);
}

__global__ void __launch_bounds__(kThreads)
    read_keys_kernel(const CompressKernelArgs a, uint16_t* keys, int64_t n) {
  enter();
  const int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (at >= n * a.index_width) return;
  const int64_t entry = at / a.index_width;
  const int64_t d = at % a.index_width;
  const uint8_t code = payload(a.index, 0, entry)[d / 2] >> (d % 2 * 4);
  keys[at] = float_to_bf16(decode_e2m1(code) * e8m0_to_float(scale(a.index, 0, entry)[d / 32]));
}

}  // namespace

void launch_step_groups(const StepGroups& args, cudaStream_t stream) {
  launch_dependent(groups_kernel, {blocks_for(args.rows.n_sequences), kThreads}, args, stream);
}

void launch_pool_groups(const CompressKernelArgs& args, cudaStream_t stream) {
  launch_dependent(pool_kernel, {blocks_for(args.n_groups * args.width), kThreads}, args, stream);
}

void launch_write_keys(const CompressKernelArgs& args, cudaStream_t stream) {
  const unsigned blocks = blocks_for(args.n_groups * args.index_width);
  launch_dependent(write_keys_kernel, {blocks, kThreads}, args, stream);
}

void launch_write_entries(const CompressKernelArgs& args, cudaStream_t stream) {
  launch_dependent(write_entries_kernel, {blocks_for(args.n_groups * args.width), kThreads}, args,
                   stream);
}

void launch_keep_remainder(const CompressKernelArgs& args, cudaStream_t stream) {
  launch_dependent(remainder_kernel, {blocks_for(args.rows.n_rows * args.width), kThreads}, args,
                   stream);
}

void launch_read_entries(const CompressKernelArgs& args, cudaStream_t stream) {
  launch_dependent(read_entries_kernel, {blocks_for(args.n_groups * args.width), kThreads}, args,
                   stream);
}

void launch_read_keys(const CompressKernelArgs& args, uint16_t* keys, int64_t n,
                      cudaStream_t stream) {
  read_keys_kernel<<<blocks_for(n * args.index_width), kThreads, 0, stream>>>(args, keys, n);
}

}  // namespace fathom::cuda
