#include <CLI/CLI.hpp>
#include <iostream>

#include "apps/common.h"
#include "apps/numbers.h"
#include "apps/plan_flag.h"
#include "apps/progress.h"
#include "apps/signals.h"
#include "apps/verb.h"
#include "checkpoint/fingerprint.h"
#include "model/inventory.h"
#include "model/plans.h"
#include "model/synth.h"

namespace fathom {
namespace {

class SynthVerb final : public Verb {
 public:
  const char* name() const override { return "synth"; }
  const char* help() const override { return "Write a random model in the released format"; }

  void add_options(CLI::App& app) override {
    app.add_option("--plan", plan_name_,
                   "released, t12, n12, n34, p7, r8, p165, or the path of a config.json")
        ->check(known_plan)
        ->required();
    app.add_option("-o,--out", folder_, "Folder to write; may hold no *.safetensors yet")
        ->required();
    app.add_option("--seed", seed_, "The same plan and seed give the same bytes")
        ->check(any_seed())
        ->capture_default_str();
    app.add_option("--max-shard", max_shard_bytes_, "Bytes of a file at most (K, M, G)")
        ->transform(size_number(int64_t{1} << 16, int64_t{1} << 50))
        ->capture_default_str();
    app.add_option("--threads", n_threads_, "CPU threads, 0: one for each hardware thread")
        ->check(whole_number(0, 4096))
        ->capture_default_str();
    output_.add_to(app);
  }

  int run() override {
    const StopSignals stop;
    const Result<void> done = write();
    return StopSignals::finish(done ? 0 : fail(done.error()));
  }

 private:
  Result<void> write() {
    FATHOM_ASSIGN_OR_RETURN(const ModelConfig config, plan_from(plan_name_));
    FATHOM_ASSIGN_OR_RETURN(ThreadPool pool, ThreadPool::make(n_threads_));
    ProgressLine line(output_.show_progress(), "synth", "bytes");
    SynthOptions options = {.seed = seed_, .max_shard_bytes = max_shard_bytes_};
    options.progress = [&](int64_t done, int64_t total) {
      line.update(done, total);
      return !StopSignals::requested();
    };
    // A model that this machine cannot map is none that is left behind.
    options.accept = [&]() -> Result<void> {
      line.clear();
      FATHOM_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::open(folder_));
      report(checkpoint, to_hex(cached_fingerprint(checkpoint, pool)));
      return {};
    };
    Result<void> written = write_random_model(folder_, config, options, pool);
    line.clear();
    return written;
  }

  void report(const Checkpoint& checkpoint, const std::string& fingerprint) const {
    const int64_t bytes = checkpoint.payload_bytes();
    const auto n_tensors = static_cast<int64_t>(checkpoint.tensors().size());
    if (output_.json) {
      print_json(boost::json::object{
          {"bytes", bytes}, {"tensors", n_tensors}, {"fingerprint", fingerprint}});
      return;
    }
    std::cout << folder_ << ": " << n_tensors << " tensors, " << bytes << " bytes in "
              << checkpoint.files().size() << " files\nfingerprint " << fingerprint << "\n";
  }

  OutputFlags output_;
  std::string plan_name_;
  std::string folder_;
  uint64_t seed_ = 0;
  int64_t max_shard_bytes_ = int64_t{2} << 30;
  int n_threads_ = 0;
};

}  // namespace

std::unique_ptr<Verb> make_synth() { return std::make_unique<SynthVerb>(); }

}  // namespace fathom
