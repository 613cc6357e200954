#pragma once

// CudaOps: every word on the stream of one GPU, bit for bit what ops/cpu computes: the same
// summation trees, functions and rounding (docs/design/cuda.md). Words return before the GPU is
// done; memory().sync() tells whether they succeeded. Tensors lie in memory(), but for what
// ops/words.h has on the host: Rows, block lists and slots, lists of rows, experts' descriptions.

#include <initializer_list>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "ops/backends.h"
#include "ops/cuda/fast_weights.h"
#include "ops/cuda/memory.h"
#include "ops/cuda/product.h"
#include "ops/cuda/recording.h"
#include "ops/cuda/tables.h"
#include "ops/ops.h"

namespace fathom {

namespace cuda {
struct CompressKernelArgs;
struct MhcArgs;
struct AttendKernelArgs;
struct ExpertPass;
struct ExpertsPiece;
struct IndexKernelArgs;
struct DenseDecode;
struct DensePairDecode;
}  // namespace cuda

class CudaOps final : public Ops {
 public:
  explicit CudaOps(std::unique_ptr<cuda::Memory> memory, Numerics numerics = Numerics::kExact);
  ~CudaOps() override;

  // Whoever asks for the memory may look at anything: nothing is left running beside the stream.
  DeviceMemory& memory() override {
    join();
    return *memory_;
  }
  cuda::Memory& gpu() { return *memory_; }
  Result<void> prepare(const Weight& w) override;
  Result<void> prepare_grouped(const Weight& w) override;
  Result<void> prepare(std::span<const ExpertWeights> experts,
                       const ExpertWeights& shared) override;
  Recorder* recorder() override {
    join();
    return &recording_;
  }
  const cuda::FastReport& fast_report() const { return fast_.report(); }

 protected:
  void do_rope(const RopeArgs& args) override;
  void do_embed(const EmbedArgs& args) override;
  void do_gather_rows(const GatherRowsArgs& args) override;
  void do_mhc_step(const MhcStepArgs& args) override;
  void do_rms_norm(const RmsNormArgs& args) override;
  void do_linear(const LinearArgs& args) override;
  void do_grouped_linear(const GroupedLinearArgs& args) override;
  void do_window_kv(const WindowKvArgs& args) override;
  void do_window_commit(const WindowCommitArgs& args) override;
  void do_compress(const CompressArgs& args) override;
  void do_index_select(const IndexSelectArgs& args) override;
  void do_attend(const AttendArgs& args) override;
  void do_route(const RouteArgs& args) override;
  void do_experts(const ExpertsArgs& args) override;
  void do_engram_rows(const EngramRowsArgs& args) override;
  void do_engram_gather(const EngramGatherArgs& args) override;
  void do_engram_mix(const EngramMixArgs& args) override;
  void do_greedy(const GreedyArgs& args) override;

 private:
  // The pointers of all experts of a layer, on the device.
  struct ExpertTable {
    std::vector<cuda::WeightPointers> host;
    Buffer device;
  };
  const cuda::WeightPointers* expert_table(std::span<const ExpertWeights> experts);

  // Names the word in which a launch failed, and shows what a probe asks for.
  void done(const char* word) { memory_->check(cudaGetLastError(), word); }
  Tensor made(void* data, DType dtype, std::initializer_list<int64_t> shape) const;
  // n ids on the device, in scratch place `place`.
  int64_t* staged(size_t place, std::span<const int64_t> values);
  cudaStream_t stream() const { return memory_->stream(); }
  // A probe sees the exact kernels.
  bool fast() const { return numerics_ != Numerics::kExact && !probing(); }
  bool trial() const { return numerics_ == Numerics::kTrial && !probing(); }

  // Products of packed FP8 weights by the kernel for few or for many rows; the bits are the same.
  bool wide(int64_t n_rows) const;
  // Rows by their bf16 values on tensor cores; false where the weight was not packed for it.
  bool linear_of_values(const Tensor& out, const Tensor& x, const Weight& w, int64_t groups);
  const uint8_t* staged_rows(const uint8_t* x, const uint8_t* x_scales, int m, int k);
  void dense_fast(const cuda::DenseDecode& product, const char* word);
  void dense_pair_fast(const cuda::DensePairDecode& product, const char* word);

  // Coefficients of a site are predicted beside the sub-layer that follows it: on side(), from
  // fork() on. join() is called by every word that reads or overwrites what they use; true where
  // there was something to wait for.
  cudaStream_t fork();
  bool join();

  void mhc_in_parts(const MhcStepArgs& args, const cuda::MhcArgs& kernel);
  bool attend_fast(const AttendArgs& args, const cuda::AttendKernelArgs& kernel);
  bool experts_fast(const ExpertsArgs& args);
  void run_shared(const cuda::ExpertsPiece& piece);
  void room_for_many(cuda::ExpertsPiece& piece);
  const int64_t* stage_groups(const Rows& rows, cuda::CompressKernelArgs& kernel);
  // Groups that a recorded step may complete, computed by it.
  const int64_t* recorded_groups(cuda::CompressKernelArgs& kernel);

  void compress_entries(const CompressArgs& args, cuda::CompressKernelArgs& kernel);
  void select_pieces(const IndexSelectArgs& args, cuda::IndexKernelArgs& kernel);
  void show_scores(const IndexSelectArgs& args, const float* scores, int64_t stride);
  void run_experts(const cuda::ExpertPass& pass, float limit);

  std::unique_ptr<cuda::Memory> memory_;
  Numerics numerics_;
  cuda::Scratch scratch_;
  cuda::StepTables tables_;
  cuda::Recording recording_;
  cuda::FastWeights fast_;
  cudaStream_t side_ = nullptr;
  cudaEvent_t forked_ = nullptr;
  cudaEvent_t joined_ = nullptr;
  bool side_busy_ = false;
  std::map<const void*, ExpertTable> expert_tables_;
};

}  // namespace fathom
