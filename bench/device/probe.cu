// Questions about the chip that the kernels' design rests on. Prints one line for each answer.
// docs/kernels/probe.md holds the answers with their date.

#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include <cmath>
#include <cstring>

#include "device.cuh"
#include "ops/cuda/ptx.cuh"
#include "ops/cuda/wgmma.cuh"

namespace fathom::device {
namespace {

using cuda::ptx::shared_address;

__device__ uint32_t swizzled(uint32_t row, uint32_t byte) {
  return row * 128 + (((byte >> 4) ^ (row & 7)) << 4) + (byte & 15);
}

__device__ void stage(uint8_t* to, const uint8_t* from, int rows) {
  for (int i = threadIdx.x; i < rows * 128; i += blockDim.x)
    to[swizzled(i / 128, i % 128)] = from[i];
}

// D[64, kN] = A[64, 128] B[kN, 128]^T of one-byte elements, `steps` of 32.
template <int kN, bool kRegisters>
__global__ void sum_e4m3(const uint8_t* a, const uint8_t* b, float* out, int steps) {
  extern __shared__ __align__(1024) uint8_t shared[];
  uint8_t* as = shared;
  uint8_t* bs = shared + 8192;
  stage(as, a, 64);
  stage(bs, b, kN);
  cuda::ptx::proxy_fence();
  __syncthreads();
  const int warp = threadIdx.x / 32;
  const int g = threadIdx.x % 32 / 4;
  const int t = threadIdx.x % 4;
  float d[kN / 2] = {};
  for (int s = 0; s < steps; ++s) {
    const uint64_t bd = cuda::wgmma::descriptor(shared_address(bs)) + 2 * s;
    cuda::wgmma::fence();
    if constexpr (kRegisters) {
      uint32_t f[4];
      for (int i = 0; i < 4; ++i) {
        const int row = 16 * warp + g + 8 * (i & 1);
        std::memcpy(&f[i], a + row * 128 + 32 * s + 16 * (i >> 1) + 4 * t, 4);
      }
      cuda::wgmma::e4m3<kN>(d, f, bd, s > 0);
    } else {
      cuda::wgmma::e4m3<kN>(d, cuda::wgmma::descriptor(shared_address(as)) + 2 * s, bd, s > 0);
    }
    cuda::wgmma::commit();
    cuda::wgmma::wait<0>();
  }
  for (int j = 0; j < kN / 2; ++j) {
    const int row = 16 * warp + g + 8 * (j / 2 % 2);
    out[row * kN + 8 * (j / 4) + 2 * t + j % 2] = d[j];
  }
}

// The same for BF16: K = 64, steps of 16.
template <int kN>
__global__ void sum_bf16(const uint8_t* a, const uint8_t* b, float* out, int steps) {
  extern __shared__ __align__(1024) uint8_t shared[];
  stage(shared, a, 64);
  stage(shared + 8192, b, kN);
  cuda::ptx::proxy_fence();
  __syncthreads();
  float d[kN / 2] = {};
  for (int s = 0; s < steps; ++s) {
    cuda::wgmma::fence();
    cuda::wgmma::bf16<kN>(d, cuda::wgmma::descriptor(shared_address(shared)) + 2 * s,
                          cuda::wgmma::descriptor(shared_address(shared + 8192)) + 2 * s, s > 0);
    cuda::wgmma::commit();
    cuda::wgmma::wait<0>();
  }
  for (int j = 0; j < kN / 2; ++j) {
    const int row = 16 * (threadIdx.x / 32) + threadIdx.x % 32 / 4 + 8 * (j / 2 % 2);
    out[row * kN + 8 * (j / 4) + 2 * (threadIdx.x % 4) + j % 2] = d[j];
  }
}

using Bytes = std::vector<uint8_t>;

template <int kN, bool kRegisters = false>
std::vector<float> e4m3(const Bytes& a, const Bytes& b, int steps = 4) {
  const Device<uint8_t> da(a), db(b);
  const Device<float> out(64 * kN);
  auto* kernel = sum_e4m3<kN, kRegisters>;
  must(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 65536), "smem");
  kernel<<<1, 128, 8192 + kN * 128>>>(da.get(), db.get(), out.get(), steps);
  must(cudaDeviceSynchronize(), "sum_e4m3");
  return out.host();
}
template <int kN>
std::vector<float> bf16(const Bytes& a, const Bytes& b, int steps = 4) {
  const Device<uint8_t> da(a), db(b);
  const Device<float> out(64 * kN);
  auto* kernel = sum_bf16<kN>;
  must(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 65536), "smem");
  kernel<<<1, 128, 8192 + kN * 128>>>(da.get(), db.get(), out.get(), steps);
  must(cudaDeviceSynchronize(), "sum_bf16");
  return out.host();
}

uint64_t seed = 1;
uint8_t random_e4m3() {
  for (;;) {
    const auto code = static_cast<uint8_t>(mixed(seed++));
    if ((code & 0x7F) != 0x7F) return code;
  }
}
Bytes random_e4m3(int count) {
  Bytes out(count);
  for (uint8_t& b : out) b = random_e4m3();
  return out;
}
Bytes random_bf16(int rows) {
  Bytes out(rows * 128);
  for (int i = 0; i < rows * 64; ++i) {
    const uint64_t bits = mixed(seed++);
    const auto value = static_cast<uint16_t>((bits & 0x807F) | ((118 + (bits >> 20) % 16) << 7));
    std::memcpy(&out[2 * i], &value, 2);
  }
  return out;
}
int differing(const std::vector<float>& x, const std::vector<float>& y) {
  int count = 0;
  for (size_t i = 0; i < x.size(); ++i) count += std::memcmp(&x[i], &y[i], 4) != 0;
  return count;
}

std::vector<float> transposed(const std::vector<float>& x) {
  std::vector<float> out(x.size());
  for (int i = 0; i < 64; ++i) {
    for (int j = 0; j < 64; ++j) out[j * 64 + i] = x[i * 64 + j];
  }
  return out;
}

void probe_swap() {
  int fp8 = 0;
  int wide = 0;
  int registers = 0;
  for (int round = 0; round < 32; ++round) {
    const Bytes a = random_e4m3(8192);
    const Bytes b = random_e4m3(8192);
    fp8 += differing(e4m3<64>(a, b), transposed(e4m3<64>(b, a)));
    registers += differing(e4m3<64>(a, b), e4m3<64, true>(a, b));
    const Bytes c = random_bf16(64);
    const Bytes d = random_bf16(64);
    wide += differing(bf16<64>(c, d), transposed(bf16<64>(d, c)));
  }
  std::printf("swap: of %d sums, differing after swapping operands: e4m3 %d, bf16 %d\n", 32 * 4096,
              fp8, wide);
  std::printf("swap: A in registers against A in shared memory, differing: %d\n", registers);
}

template <int kN>
int differs_at(const Bytes& a, const Bytes& probe, const std::vector<float>& want) {
  Bytes b = random_e4m3(kN * 128);
  int bad = 0;
  for (int at = 0; at < kN; at += 8) {
    std::copy(probe.begin(), probe.end(), b.begin() + at * 128);
    const std::vector<float> got = e4m3<kN>(a, b);
    for (int i = 0; i < 64; ++i) {
      for (int j = 0; j < 8; ++j) {
        bad += std::memcmp(&got[i * kN + at + j], &want[i * 8 + j], 4) != 0;
      }
    }
  }
  return bad;
}
void probe_width() {
  const Bytes a = random_e4m3(8192);
  const Bytes probe = random_e4m3(1024);
  const std::vector<float> want = e4m3<8>(a, probe);
  std::printf(
      "width: differing from n8 at every column position: n16 %d n32 %d n64 %d n128 %d n256 %d\n",
      differs_at<16>(a, probe, want), differs_at<32>(a, probe, want),
      differs_at<64>(a, probe, want), differs_at<128>(a, probe, want),
      differs_at<256>(a, probe, want));
  Bytes moved(8192);
  for (int r = 0; r < 64; ++r) {
    std::copy_n(a.begin() + r * 128, 128, moved.begin() + (r * 37 + 11) % 64 * 128);
  }
  const std::vector<float> got = e4m3<8>(moved, probe);
  int bad = 0;
  for (int r = 0; r < 64; ++r) {
    for (int j = 0; j < 8; ++j) {
      bad += std::memcmp(&got[(r * 37 + 11) % 64 * 8 + j], &want[r * 8 + j], 4) != 0;
    }
  }
  std::printf("width: differing after moving rows of A within the tile: %d\n", bad);
}

void set_bf16(Bytes* m, int row, int column, float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, 4);
  const auto half = static_cast<uint16_t>(bits >> 16);
  std::memcpy(&(*m)[row * 128 + 2 * column], &half, 2);
}
void set_e4m3(Bytes* m, int row, int column, float value) {
  (*m)[row * 128 + column] = __nv_fp8_e4m3(value).__x;
}

void probe_subnormal() {
  Bytes a(8192);
  Bytes b(1024);
  for (int k = 0; k < 128; ++k) {
    set_e4m3(&a, 0, k, std::ldexp(1.F, -9));
    set_e4m3(&b, 0, k, std::ldexp(1.F, -9));
    set_e4m3(&a, 1, k, std::ldexp(3.F, -9));
  }
  const std::vector<float> d = e4m3<8>(a, b);
  std::printf("subnormal e4m3: 128 x 2^-9 x 2^-9 = %g (exact %g), 3/512: %g (exact %g)\n", d[0],
              std::ldexp(128., -18), d[8], std::ldexp(384., -18));
  Bytes c(8192);
  Bytes e(1024);
  for (int k = 0; k < 64; ++k) {
    set_bf16(&c, 0, k, std::ldexp(1.F, -133));
    set_bf16(&c, 1, k, std::ldexp(1.F, -127));
    set_bf16(&e, 0, k, std::ldexp(1.F, 100));
    set_bf16(&e, 1, k, 0.25F);
  }
  const std::vector<float> f = bf16<8>(c, e);
  std::printf(
      "subnormal bf16: 64 x 2^-133 x 2^100 = %g (exact %g), 64 x 2^-127 x 2^100 = %g (%g)\n", f[0],
      std::ldexp(64., -33), f[8], std::ldexp(64., -27));
  std::printf("subnormal result bf16: 64 x 2^-127 x 2^-2 = %g (exact %g)\n", f[9],
              std::ldexp(64., -129));
}

// big = 2^top in element `at`, plus `count` products of sign x 2^(top - k) from `first` on; prints
// (sum - big) / 2^(top - k) for k = 8 .. 30.
template <bool kE4m3>
void probe_rounding(const char* name, int first, int count, float sign) {
  std::printf("rounding %s:", name);
  for (int k = 8; k <= 30; ++k) {
    Bytes a(8192);
    Bytes b(1024);
    auto put = [&](Bytes* m, int column, float value) {
      if (kE4m3) {
        set_e4m3(m, 0, column, value);
      } else {
        set_bf16(m, 0, column, value);
      }
    };
    put(&a, 0, 256.F);
    put(&b, 0, 256.F);
    const int shift = 16 - k;
    const int half = shift / 2;
    for (int i = 0; i < count; ++i) {
      put(&a, first + i, sign * std::ldexp(1.F, half));
      put(&b, first + i, std::ldexp(1.F, shift - half));
    }
    const float sum = kE4m3 ? e4m3<8>(a, b)[0] : bf16<8>(a, b)[0];
    std::printf(" %g", std::ldexp(static_cast<double>(sum) - 65536., -shift));
  }
  std::printf("\n");
}

// --- speed ---------------------------------------------------------------------------------------

template <int kLoads>
__global__ void read_kernel(const uint4* in, size_t per_block, uint32_t* out, bool dependent) {
  if (dependent) cuda::ptx::launch_dependents();
  uint32_t sum = 0;
  const uint4* p = in + per_block * blockIdx.x;
  bool waited = !dependent;
  for (size_t i = threadIdx.x; i < per_block; i += size_t{blockDim.x} * kLoads) {
    uint4 v[kLoads];
#pragma unroll
    for (int j = 0; j < kLoads; ++j) {
      v[j] = uint4{};
      const size_t at = i + static_cast<size_t>(j) * blockDim.x;
      if (at < per_block) v[j] = cuda::ptx::stream16(p + at);
    }
    if (!waited) cuda::ptx::wait_for_inputs();
    waited = true;
#pragma unroll
    for (int j = 0; j < kLoads; ++j) sum += v[j].x ^ v[j].y ^ v[j].z ^ v[j].w;
  }
  if (!waited) cuda::ptx::wait_for_inputs();
  if (sum == 0x12345678U) out[blockIdx.x] = sum;
}
__global__ void copy_kernel(const uint4* in, uint4* out, size_t count) {
  const size_t step = size_t{blockDim.x} * gridDim.x;
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count; i += 4 * step) {
    uint4 v[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (i + j * step < count) v[j] = cuda::ptx::stream16(in + i + j * step);
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (i + j * step < count) out[i + j * step] = v[j];
    }
  }
}
__global__ void fill_kernel(uint64_t* out, size_t count) {
  const size_t step = size_t{blockDim.x} * gridDim.x;
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count; i += step) {
    out[i] = mixed(i);
  }
}

// Rows of 288 bytes at random places of a table of `rows`, one half warp and two lanes a row.
__global__ void gather_kernel(const uint8_t* table, uint32_t rows, int each, uint32_t* out) {
  uint32_t sum = 0;
  const uint32_t warp = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
  const uint32_t lane = threadIdx.x % 32;
  for (int i = 0; i < each; i += 8) {
    uint4 v[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const uint32_t row = static_cast<uint32_t>(mixed((warp << 12) + i + j) >> 32) % rows;
      v[j] = uint4{};
      if (lane < 18) v[j] = cuda::ptx::stream16(table + size_t{row} * 288 + lane * 16);
    }
#pragma unroll
    for (int j = 0; j < 8; ++j) sum += v[j].x ^ v[j].y ^ v[j].z ^ v[j].w;
  }
  if (sum == 0x12345678U) out[blockIdx.x] = sum;
}

__global__ void empty_kernel(bool dependent, uint32_t* out) {
  if (dependent) {
    cuda::ptx::launch_dependents();
    cuda::ptx::wait_for_inputs();
  }
  if (threadIdx.x == 0) out[0] = blockIdx.x;
}

// Tensor-core rate: two warpgroups a block, operands in shared memory, never reloaded.
template <bool kE4m3>
__global__ void __launch_bounds__(256, 1) rate_kernel(const uint8_t* data, float* out, int rounds) {
  extern __shared__ __align__(1024) uint8_t shared[];
  stage(shared, data, 384);
  cuda::ptx::proxy_fence();
  __syncthreads();
  const uint64_t a = cuda::wgmma::descriptor(shared_address(shared + 8192 * (threadIdx.x / 128)));
  const uint64_t b = cuda::wgmma::descriptor(shared_address(shared + 16384));
  float d[128] = {};
  for (int r = 0; r < rounds; ++r) {
    cuda::wgmma::fence();
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      if constexpr (kE4m3) {
        cuda::wgmma::e4m3<256>(d, a + 2 * s, b + 2 * s, true);
      } else {
        cuda::wgmma::bf16<256>(d, a + 2 * s, b + 2 * s, true);
      }
    }
    cuda::wgmma::commit();
    cuda::wgmma::wait<0>();
  }
  float sum = 0;
  for (float v : d) sum += v;
  out[blockIdx.x * 256 + threadIdx.x] = sum;
}

void probe_bandwidth(const Device<uint8_t>& big) {
  const Device<uint32_t> out(4096);
  const auto* in = reinterpret_cast<const uint4*>(big.get());
  const size_t all = big.size() / 16;
  for (double mb : {9.2, 23.6, 41.9, 512., 2048.}) {
    const auto count = static_cast<size_t>(mb * 1e6 / 16) / 528 * 528;
    const size_t copies = std::max<size_t>(1, all / count);
    const int nodes = mb > 300 ? 4 : 40;
    for (int blocks : {132, 264, 528}) {
      for (bool dependent : {false, true}) {
        const double us = graph_time(nodes, [&](int i, cudaStream_t s) {
          launch_kernel(read_kernel<8>, {dim3(blocks), dim3(512), dependent}, s,
                        in + (i % copies) * count, count / blocks, out.get(), dependent);
        });
        std::printf("read %.1f MB, %d blocks, %s: %.2f us %.2f TB/s\n", mb, blocks,
                    dependent ? "PDL" : "plain", us, count * 16 / us * 1e-6);
      }
    }
  }
  const size_t half = size_t{1} << 26;
  const double us = graph_time(4, [&](int, cudaStream_t s) {
    copy_kernel<<<132 * 8, 512, 0, s>>>(in, reinterpret_cast<uint4*>(big.get()) + half, half);
  });
  std::printf("copy 1 GiB (read + write counted): %.1f us %.2f TB/s\n", us, half * 32 / us * 1e-6);
  for (uint32_t rows : {57344U, 1U << 23}) {
    const double g = graph_time(8, [&](int, cudaStream_t s) {
      gather_kernel<<<132 * 2, 1024, 0, s>>>(big.get(), rows, 256, out.get());
    });
    std::printf("gather of 288-byte rows, table %.0f MB: %.1f us %.2f TB/s\n", rows * 288e-6, g,
                132. * 2 * 32 * 256 * 288 / g * 1e-6);
  }
}

void probe_launch() {
  const Device<uint32_t> out(4);
  for (int blocks : {1, 132}) {
    for (bool dependent : {false, true}) {
      const double us = graph_time(200, [&](int, cudaStream_t s) {
        launch_kernel(empty_kernel, {dim3(blocks), dim3(128), dependent}, s, dependent, out.get());
      });
      std::printf("graph node of an empty kernel, %d blocks, %s: %.2f us\n", blocks,
                  dependent ? "PDL" : "plain", us);
    }
  }
}

void probe_rate(const Device<uint8_t>& big) {
  const Device<float> out(132 * 256);
  const int rounds = 20000;
  for (int pass = 0; pass < 2; ++pass) {
    for (bool fp8 : {true, false}) {
      auto* kernel = fp8 ? rate_kernel<true> : rate_kernel<false>;
      must(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 65536),
           "smem");
      // Codes without NaN and of moderate size: every byte below 0x7F in magnitude.
      const double us = graph_time(1, [&](int, cudaStream_t s) {
        kernel<<<132, 256, 49152, s>>>(big.get(), out.get(), rounds);
      });
      const double flops = 2. * 64 * 256 * (fp8 ? 32 : 16) * 4 * 2 * 132 * rounds;
      std::printf("tensor rate %s (own loop, operands stay): %.0f TFLOP/s\n", fp8 ? "e4m3" : "bf16",
                  flops / us * 1e-6);
    }
  }
}

int run() {
  cudaDeviceProp properties{};
  must(cudaGetDeviceProperties(&properties, 0), "properties");
  std::printf("device: %d SMs, %d MB L2\n", properties.multiProcessorCount,
              properties.l2CacheSize >> 20);
  probe_swap();
  probe_width();
  probe_subnormal();
  probe_rounding<true>("e4m3 same step, +1", 1, 1, 1.F);
  probe_rounding<true>("e4m3 same step, -1", 1, 1, -1.F);
  probe_rounding<true>("e4m3 same step, +16", 1, 16, 1.F);
  probe_rounding<true>("e4m3 same step, other half, +1", 17, 1, 1.F);
  probe_rounding<true>("e4m3 next step, +1", 33, 1, 1.F);
  probe_rounding<true>("e4m3 next step, -1", 33, 1, -1.F);
  probe_rounding<true>("e4m3 next step, +16", 33, 16, 1.F);
  probe_rounding<false>("bf16 same step, +1", 1, 1, 1.F);
  probe_rounding<false>("bf16 same step, -1", 1, 1, -1.F);
  probe_rounding<false>("bf16 same step, +8", 1, 8, 1.F);
  probe_rounding<false>("bf16 next step, +1", 17, 1, 1.F);
  probe_rounding<false>("bf16 next step, -1", 17, 1, -1.F);
  probe_launch();
  const Device<uint8_t> big(size_t{3} << 30);
  fill_kernel<<<1024, 256>>>(reinterpret_cast<uint64_t*>(big.get()), big.size() / 8);
  must(cudaDeviceSynchronize(), "fill");
  probe_bandwidth(big);
  probe_rate(big);
  return 0;
}

}  // namespace
}  // namespace fathom::device

int main() { return fathom::device::run(); }
