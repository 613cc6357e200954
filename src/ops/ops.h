#pragma once

// Ops: the vocabulary in which model/ is written, with the grain of the fused kernels. Every word
// checks shapes and dtypes once for all backends, then runs the backend's body. The CPU bodies
// (ops/cpu/) define the meaning; ops/words.h says what each word computes.
//
// Thread rule: one thread calls words of one Ops object; a backend may use threads inside a word.
// A violated shape is a bug of the caller and stops the program.

#include <string>

#include "base/result.h"
#include "ops/probe.h"
#include "ops/recorder.h"
#include "ops/words.h"
#include "tensor/memory.h"

namespace fathom {

class Ops {
 public:
  virtual ~Ops() = default;

  // Where the tensors of every word lie. Its sync() tells whether the words so far succeeded.
  virtual DeviceMemory& memory() { return host_memory_; }

  void rope(const RopeArgs& args);
  void embed(const EmbedArgs& args);
  void gather_rows(const GatherRowsArgs& args);
  void mhc_step(const MhcStepArgs& args);
  void rms_norm(const RmsNormArgs& args);
  void linear(const LinearArgs& args);
  void grouped_linear(const GroupedLinearArgs& args);
  void window_kv(const WindowKvArgs& args);
  void window_commit(const WindowCommitArgs& args);
  void compress(const CompressArgs& args);
  void index_select(const IndexSelectArgs& args);
  void attend(const AttendArgs& args);
  void route(const RouteArgs& args);
  void experts(const ExpertsArgs& args);
  void engram_rows(const EngramRowsArgs& args);
  void engram_gather(const EngramGatherArgs& args);
  void engram_mix(const EngramMixArgs& args);
  void greedy(const GreedyArgs& args);

  // What a model tells a backend before its first step: a weight of `linear`, and the experts of a
  // layer, which outlive the backend's use. It may keep them in an order of its own; a weight that
  // was not told is read as it lies. kExhausted where the memory for that is not to be had.
  virtual Result<void> prepare(const Weight&) { return {}; }
  // A weight of `grouped_linear`.
  virtual Result<void> prepare_grouped(const Weight&) { return {}; }
  virtual Result<void> prepare(std::span<const ExpertWeights>, const ExpertWeights&) { return {}; }

  // Null where the backend cannot keep a step.
  virtual Recorder* recorder() { return nullptr; }

  // The probe is borrowed and may be null. The scope is put before every name: "L03.".
  void set_probe(Probe* probe) { probe_ = probe; }
  void set_scope(std::string scope) { scope_ = std::move(scope); }
  const std::string& scope() const { return scope_; }
  bool probing() const { return probe_ != nullptr; }
  // A probe sees, and may change, host memory: tensors of a device go there and back.
  void show(const char* name, const Tensor& tensor) {
    if (probe_ != nullptr) show_on_host(name, tensor);
  }

 protected:
  virtual void do_rope(const RopeArgs& args) = 0;
  virtual void do_embed(const EmbedArgs& args) = 0;
  virtual void do_gather_rows(const GatherRowsArgs& args) = 0;
  virtual void do_mhc_step(const MhcStepArgs& args) = 0;
  virtual void do_rms_norm(const RmsNormArgs& args) = 0;
  virtual void do_linear(const LinearArgs& args) = 0;
  virtual void do_grouped_linear(const GroupedLinearArgs& args) = 0;
  virtual void do_window_kv(const WindowKvArgs& args) = 0;
  virtual void do_window_commit(const WindowCommitArgs& args) = 0;
  virtual void do_compress(const CompressArgs& args) = 0;
  virtual void do_index_select(const IndexSelectArgs& args) = 0;
  virtual void do_attend(const AttendArgs& args) = 0;
  virtual void do_route(const RouteArgs& args) = 0;
  virtual void do_experts(const ExpertsArgs& args) = 0;
  virtual void do_engram_rows(const EngramRowsArgs& args) = 0;
  virtual void do_engram_gather(const EngramGatherArgs& args) = 0;
  virtual void do_engram_mix(const EngramMixArgs& args) = 0;
  virtual void do_greedy(const GreedyArgs& args) = 0;

 private:
  void show_on_host(const char* name, const Tensor& tensor);

  HostMemory host_memory_;
  Probe* probe_ = nullptr;
  std::string scope_;
};

}  // namespace fathom
