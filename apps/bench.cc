#include "apps/bench.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>

#include "apps/common.h"
#include "apps/numbers.h"
#include "apps/plan_flag.h"
#include "apps/progress.h"
#include "apps/signals.h"
#include "apps/usage.h"
#include "apps/verb.h"
#include "base/file.h"
#include "base/temporary.h"
#include "model/config.h"
#include "ops/rows.h"

namespace fathom {
namespace {

namespace fs = std::filesystem;

// "model name" of the processor, where the system tells it.
std::string processor_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

std::string default_proxy_dir() {
  std::error_code code;
  const fs::path program = fs::read_symlink("/proc/self/exe", code);
  return (program.parent_path() / "proxies").string();
}

class BenchVerb final : public Verb {
 public:
  const char* name() const override { return "bench"; }
  const char* help() const override { return "Measure, each figure beside its bound"; }

  void add_options(CLI::App& app) override {
    app.add_option("--suite", suites_, "Suites: cpu, ops, decode, prefill, tokenizer")
        ->delimiter(',')
        ->check(CLI::IsMember({"cpu", "ops", "decode", "prefill", "tokenizer"}))
        ->default_str("cpu,decode,prefill");
    model_option_ = app.add_option(
        "-m,--model", options_.model,
        "Model folder for decode, prefill and tokenizer (default: a proxy of --plan; "
        "tokenizer: the model in models/)");
    add_model_options(app);
    app.add_option("--threads", options_.backend.n_threads,
                   "CPU threads, 0: one for each hardware thread")
        ->check(whole_number(0, 4096))
        ->capture_default_str();
    app.add_option("--csv", csv_, "Write the rows to this file too")->type_name("FILE");
    output_.add_to(app);
  }

  std::string misuse(const TypedOptions& typed) const override {
    if (const std::string twice = repeated_word(suites_); !twice.empty()) {
      return "--suite: wanted each suite once, found " + twice + " twice";
    }
    const bool model = wants("decode") || wants("prefill");
    const int64_t positions = options_.prompt + options_.steps + kWarmupSteps;
    if (model && positions > kPositionsMax) {
      return "--context and --steps: wanted at most " +
             std::to_string(kPositionsMax - kWarmupSteps) + " positions together, found " +
             std::to_string(positions - kWarmupSteps);
    }
    if (options_.invented && wants("prefill")) {
      return "--invented: wanted --suite without prefill, which it leaves out, found prefill";
    }
    if (numerics_ != "exact" && backend_ == "cpu") {
      return "--numerics: wanted " + numerics_ + " with --backend cuda or auto, found it with cpu";
    }
    if (const CLI::Option* idle = first_typed(typed, decode_options_);
        idle != nullptr && !wants("decode")) {
      return idle->get_name() + ": wanted it with --suite decode, found it without";
    }
    const CLI::Option* idle = model ? nullptr : first_typed(typed, proxy_options_);
    if (idle == nullptr && !model && !wants("tokenizer")) {
      idle = first_typed(typed, {model_option_});
    }
    if (idle == nullptr) return {};
    return idle->get_name() + ": wanted it with --suite decode or prefill, found it without either";
  }

  int run() override {
    options_.backend.kind = backend_kind(backend_);
    options_.backend.numerics = numerics_ == "trial"  ? Numerics::kTrial
                                : numerics_ == "fast" ? Numerics::kFast
                                                      : Numerics::kExact;
    options_.progress = output_.show_progress();
    options_.notes = !output_.quiet;
    if (options_.proxy_dir.empty()) options_.proxy_dir = default_proxy_dir();
    const Result<void> done = measure();
    return StopSignals::finish(done ? 0 : fail(done.error()));
  }

 private:
  // What decode and prefill take.
  void add_model_options(CLI::App& app) {
    CLI::Option* plan =
        app.add_option("--plan", options_.plan, "Plan of the random proxy, written once")
            ->check(known_plan)
            ->excludes(model_option_)
            ->capture_default_str();
    CLI::Option* proxy_dir =
        app.add_option("--proxy-dir", options_.proxy_dir, "Where proxies are kept")
            ->excludes(model_option_)
            ->default_str("proxies/ beside the program");
    CLI::Option* context =
        app.add_option("--context", options_.prompt, "Prompt tokens of prefill and before decode")
            ->check(whole_number(1, int64_t{1} << 20))
            ->capture_default_str();
    CLI::Option* backend =
        app.add_option("--backend", backend_,
                       "Where decode and prefill run; auto: the GPU where there is one")
            ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
            ->capture_default_str();
    CLI::Option* numerics =
        app.add_option("--numerics", numerics_,
                       "exact: the CPU's bits; fast: tensor cores of a GPU; trial: fast, "
                       "with kernels that have yet to pass their checks")
            ->check(CLI::IsMember({"exact", "fast", "trial"}))
            ->capture_default_str();
    CLI::Option* rows =
        app.add_option("--rows", options_.rows, "Rows of a prefill step, where the prompt has them")
            ->check(whole_number(1, int64_t{1} << 14))
            ->capture_default_str();
    CLI::Option* steps = app.add_option("--steps", options_.steps, "Decode steps")
                             ->check(whole_number(1, int64_t{1} << 20))
                             ->capture_default_str();
    CLI::Option* batch = app.add_option("--batch", options_.batch, "Sequences of a decode step")
                             ->check(whole_number(1, int64_t{1} << 12))
                             ->capture_default_str();
    CLI::Option* invented =
        app.add_flag("--invented", options_.invented,
                     "Decode behind random state of --context positions, without a prefill");
    proxy_options_ = {plan, proxy_dir, context, backend, numerics, rows};
    decode_options_ = {steps, batch, invented};
  }

  bool wants(const char* suite) const {
    if (suites_.empty())
      return std::string_view("cpu,decode,prefill").find(suite) != std::string_view::npos;
    return std::find(suites_.begin(), suites_.end(), suite) != suites_.end();
  }

  // What would end a run is looked at before its work.
  Result<void> prepare() {
    if (!csv_.empty()) FATHOM_RETURN_IF_ERROR(TemporaryFile::create(csv_));
    if (!wants("decode") && !wants("prefill")) return {};
    if (options_.model.empty()) {
      FATHOM_ASSIGN_OR_RETURN(options_.folder, proxy_folder(options_));
      return {};
    }
    options_.folder = options_.model;
    FATHOM_RETURN_IF_ERROR(read_config(options_.folder + "/config.json"));
    return {};
  }

  Result<void> measure() {
    FATHOM_RETURN_IF_ERROR(prepare());
    FATHOM_ASSIGN_OR_RETURN(machine_, machine_bounds(0));
    if (wants("ops")) FATHOM_RETURN_IF_ERROR(bench_ops(options_, machine_, rows_));
    if (wants("decode") || wants("prefill")) {
      const ModelSuites suites = {.prefill = wants("prefill"), .decode = wants("decode")};
      FATHOM_RETURN_IF_ERROR(bench_model(options_, suites, machine_, rows_));
    }
    if (wants("tokenizer")) {
      BenchOptions with_model = options_;
      FATHOM_ASSIGN_OR_RETURN(with_model.model, model_path(options_.model));
      FATHOM_RETURN_IF_ERROR(bench_tokenizer(with_model, rows_));
    }
    FATHOM_RETURN_IF_ERROR(raise_bounds());
    if (wants("cpu")) bench_cpu(machine_, rows_);
    if (!csv_.empty()) FATHOM_RETURN_IF_ERROR(write_csv());
    output_.json ? print_object() : print_table();
    return {};
  }

  // The machine is measured twice.
  Result<MachineBounds> machine_bounds(int64_t times_before) const {
    ProgressLine line(options_.progress, "bench machine", "times");
    line.update(times_before, 2);
    return measure_machine(options_.backend, 2.0);
  }

  // Measures the machine again after the work: on a shared machine a bound taken in a slow moment
  // would flatter every figure.
  Result<void> raise_bounds() {
    FATHOM_ASSIGN_OR_RETURN(const MachineBounds after, machine_bounds(1));
    const MachineBounds before = machine_;
    const auto raise = [](double& bound, double value) { bound = std::max(bound, value); };
    raise(machine_.read_bytes_per_s, after.read_bytes_per_s);
    raise(machine_.read_bytes_per_s_one_thread, after.read_bytes_per_s_one_thread);
    raise(machine_.fma_per_s, after.fma_per_s);
    raise(machine_.fma_per_s_one_thread, after.fma_per_s_one_thread);
    for (BenchRow& row : rows_) {
      if (row.bound == before.read_bytes_per_s) row.bound = machine_.read_bytes_per_s;
      if (row.bound == before.fma_per_s) row.bound = machine_.fma_per_s;
    }
    return {};
  }

  void print_object() const {
    boost::json::array rows;
    for (const BenchRow& row : rows_) {
      boost::json::object object = {{"name", row.name}, {"value", row.value}, {"unit", row.unit}};
      object["bound"] = row.bound > 0 ? boost::json::value(row.bound) : nullptr;
      object["fraction"] = row.bound > 0 ? boost::json::value(row.fraction()) : nullptr;
      object["conditions"] = row.conditions;
      rows.push_back(std::move(object));
    }
    const boost::json::object machine = {
        {"processor", processor_name()},
        {"backend", machine_.backend},
        {"threads", machine_.n_threads},
        {"read_bytes_per_s", machine_.read_bytes_per_s},
        {"read_bytes_per_s_one_thread", machine_.read_bytes_per_s_one_thread},
        {"fma_per_s", machine_.fma_per_s},
        {"fma_per_s_one_thread", machine_.fma_per_s_one_thread}};
    print_json(boost::json::object{{"machine", machine}, {"rows", rows}});
  }

  void print_table() const {
    std::printf("%s, %s, %d threads\n", processor_name().c_str(), machine_.backend.c_str(),
                machine_.n_threads);
    std::printf("reads %.1f GB/s, computes %.1f G fp32 multiply-adds/s\n\n",
                machine_.read_bytes_per_s / 1e9, machine_.fma_per_s / 1e9);
    std::printf("%-24s %12s  %-20s %8s  %s\n", "name", "value", "unit", "fraction", "conditions");
    for (const BenchRow& row : rows_) {
      const std::string fraction =
          row.bound > 0 ? std::to_string(row.fraction()).substr(0, 5) : "-";
      std::printf("%-24s %12.4g  %-20s %8s  %s\n", row.name.c_str(), row.value, row.unit.c_str(),
                  fraction.c_str(), row.conditions.c_str());
    }
  }

  Result<void> write_csv() const {
    std::ostringstream table;
    table << "name,value,unit,bound,fraction,conditions\n";
    for (const BenchRow& row : rows_) {
      table << row.name << ',' << row.value << ',' << row.unit << ',' << row.bound << ','
            << row.fraction() << ",\"";
      for (const char c : row.conditions) table << (c == '"' ? "\"\"" : std::string(1, c));
      table << "\"\n";
    }
    return write_file_atomic(csv_, table.str());
  }

  BenchOptions options_;
  std::string backend_ = "cpu";
  std::string numerics_ = "exact";
  CLI::Option* model_option_ = nullptr;
  std::vector<const CLI::Option*> proxy_options_;
  std::vector<const CLI::Option*> decode_options_;
  OutputFlags output_;
  std::vector<std::string> suites_;
  std::string csv_;
  MachineBounds machine_;
  BenchRows rows_;
};

}  // namespace

std::unique_ptr<Verb> make_bench() { return std::make_unique<BenchVerb>(); }

}  // namespace fathom
