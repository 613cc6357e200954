#pragma once

// Router scores and choice (ops/cpu/router.h). spec/backbone.md 3.10

#include <cuda_runtime_api.h>

#include <cstdint>

namespace fathom::cuda {

// scores become sqrt(softplus(scores)).
void launch_sqrt_softplus(float* scores, int64_t n, cudaStream_t stream);

struct RouteKernelArgs {
  int32_t* ids = nullptr;    // [N, k]
  float* weights = nullptr;  // [N, k]
  int64_t id_stride = 0;
  int64_t weight_stride = 0;
  const float* scores = nullptr;  // [N, E]
  bool raw = false;               // sqrt(softplus()) of the scores is still to be taken
  const float* bias = nullptr;
  const float* bias_image = nullptr;
  const uint8_t* image_mask = nullptr;  // [N], or null
  int64_t n_rows = 0;
  int64_t n_experts = 0;
  int64_t k = 0;
  float scale = 1.0f;
};
void launch_route(const RouteKernelArgs& args, cudaStream_t stream);

}  // namespace fathom::cuda
