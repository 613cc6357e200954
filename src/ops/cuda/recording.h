#pragma once

// A step as a CUDA graph (ops/recorder.h): the stream is captured while the model's words run.
// Tables of the step lie in copies of their own; the last kernel of the graph moves rows on.

#include <cuda_runtime_api.h>

#include "ops/cuda/tables.h"
#include "ops/recorder.h"

namespace fathom::cuda {

class Recording final : public Recorder {
 public:
  Recording(Memory& memory, StepTables& tables, const Scratch& scratch)
      : memory_(memory), tables_(tables), scratch_(scratch) {}
  ~Recording() override;
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  void begin(int64_t horizon) override;
  Result<void> end() override;
  bool valid() const override;
  int64_t number() const override { return number_; }
  void run() override;

  bool active() const { return memory_.recording(); }
  int64_t horizon() const { return horizon_; }
  // Bytes on the device that stay as long as the recording; null where the memory failed.
  void* keep(std::span<const std::byte> bytes);
  // Memory of the recording.
  void* room(int64_t bytes);

 private:
  void drop();

  Memory& memory_;
  StepTables& tables_;
  const Scratch& scratch_;
  std::vector<Buffer> kept_;
  cudaGraphExec_t graph_ = nullptr;
  int64_t horizon_ = 0;
  int64_t generation_ = 0;
  int64_t number_ = 0;
};

// Moves the rows of tables of one row a sequence on by one position.
inline constexpr int kMostTables = 8;
struct AdvanceRows {
  int64_t* tables[kMostTables] = {};  // as StepTables::rows lays them out
  int n_tables = 0;
  int64_t n_rows = 0;
};
void launch_advance(const AdvanceRows& args, cudaStream_t stream);

}  // namespace fathom::cuda
