#pragma once

// CpuOps: the reference meaning of every word. Each do_ function stands in the file of its
// mechanism; its arithmetic is in free functions beside it, which tests call directly. Work is
// split over threads by output rows only.

#include "base/thread_pool.h"
#include "ops/backends.h"
#include "ops/cpu/context.h"
#include "ops/ops.h"

namespace fathom {

class CpuOps final : public Ops {
 public:
  // `path` is resolved: not kBest, and present on this machine.
  CpuOps(ThreadPool pool, CpuPath path) : pool_(std::move(pool)), path_(path) {}

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
  cpu::Context context() { return {pool_, path_, scratch_}; }

  ThreadPool pool_;
  CpuPath path_;
  cpu::Scratch scratch_;
};

}  // namespace fathom
