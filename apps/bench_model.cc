#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>

#include "apps/bench.h"
#include "apps/progress.h"
#include "engine/load.h"
#include "engine/memory_plan.h"
#include "engine/runner.h"

namespace fathom {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::vector<int32_t> random_tokens(int64_t n, int64_t vocab_size) {
  std::vector<int32_t> tokens;
  uint64_t state = 7;
  for (int64_t i = 0; i < n; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    tokens.push_back(static_cast<int32_t>((state >> 33) % static_cast<uint64_t>(vocab_size)));
  }
  return tokens;
}

// Reads every page of the weights once, so that what is timed does not wait for a disk.
uint64_t touch(const Checkpoint& checkpoint) {
  uint64_t sum = 0;
  for (const auto& tensor : checkpoint.tensors()) {
    for (size_t i = 0; i < static_cast<size_t>(tensor.view.bytes()); i += 4096) {
      sum += static_cast<const uint8_t*>(tensor.view.data)[i];
    }
  }
  return sum;
}

struct Timed {
  const LoadedModel& loaded;
  Runner& runner;
  const BenchOptions& options;
  std::string where;  // model and backend, for conditions
  bool on_cpu = true;
};

Result<BenchRow> time_prefill(const Timed& t, Sequence& sequence, double fma_per_s) {
  ProgressLine line(t.options.progress, "bench prefill", "tokens");
  const auto start = Clock::now();
  const auto shown = [&](int64_t done, int64_t all) { return line.update(done, all), true; };
  FATHOM_ASSIGN_OR_RETURN(const Tensor logits, t.runner.prefill(sequence, 0, shown));
  const double seconds = seconds_since(start);
  (void)logits;
  const Model& model = *t.loaded.model;
  const double products =
      prefill_multiply_adds(model.config(), model.plan(), model.weights(), t.options.prompt);
  char text[260];
  std::snprintf(text, sizeof text,
                "%s, %lld tokens in %.4f s (%.1f tokens/s), steps of %lld rows, %.0f G products",
                t.where.c_str(), static_cast<long long>(t.options.prompt), seconds,
                static_cast<double>(t.options.prompt) / seconds,
                static_cast<long long>(std::min(t.options.prompt, t.options.rows)), products / 1e9);
  return BenchRow{"prefill", products / seconds, "fma_per_s", fma_per_s, text};
}

// Of the processor's largest cache; 0: the system does not tell.
double cache_bytes() {
  return static_cast<double>(
      std::max(::sysconf(_SC_LEVEL3_CACHE_SIZE), ::sysconf(_SC_LEVEL2_CACHE_SIZE)));
}

// Stored bytes that a step of `batch` rows reads, if rows choose experts evenly.
double step_weight_bytes(const Model& model, int64_t batch) {
  const TextConfig& text = model.config().text_config;
  const auto experts = static_cast<double>(text.n_routed_experts);
  const double missed = 1 - static_cast<double>(text.num_experts_per_tok) / experts;
  const double met = experts * (1 - std::pow(missed, static_cast<double>(batch)));
  const auto none = static_cast<double>(model.weights().bytes_per_token(0));
  return none + met * (static_cast<double>(model.weights().bytes_per_token(1)) - none);
}

BenchRow decode_row(const Timed& t, double step_seconds, int64_t context, double read_bytes_per_s) {
  const double bytes = step_weight_bytes(*t.loaded.model, t.options.batch);
  const double tokens_per_s = static_cast<double>(t.options.batch) / step_seconds;
  char text[260];
  std::snprintf(
      text, sizeof text,
      "%s, context %lld%s, batch %lld, %lld steps: %.3f ms a step, %.2f tokens/s, %.1f MB "
      "of weights a step",
      t.where.c_str(), static_cast<long long>(context), t.options.invented ? " invented" : "",
      static_cast<long long>(t.options.batch), static_cast<long long>(t.options.steps),
      step_seconds * 1e3, tokens_per_s, bytes / 1e6);
  // Nothing then bounds a step by what memory gives.
  const bool cached = t.on_cpu && bytes <= cache_bytes();
  return BenchRow{"decode", bytes / step_seconds, "weight_bytes_per_s", read_bytes_per_s,
                  text + std::string(cached ? ", which fit in the processor's cache" : "")};
}

// Each step alone, with given tokens: the median.
Result<BenchRow> time_steps(const Timed& t, std::span<Sequence*> sequences,
                            double read_bytes_per_s) {
  const Model& model = *t.loaded.model;
  const auto vocab_size = static_cast<int32_t>(model.config().text_config.vocab_size);
  std::vector<double> seconds;
  ProgressLine line(t.options.progress, "bench decode", "steps");
  for (int64_t i = 0; i < t.options.steps; ++i) {
    line.update(i, t.options.steps);
    const int32_t token[1] = {static_cast<int32_t>((i * 7919) % vocab_size)};
    std::vector<StepItem> items;
    for (Sequence* sequence : sequences) {
      if (sequence->pending() == 0) FATHOM_RETURN_IF_ERROR(t.runner.append(*sequence, token));
      items.push_back({.sequence = sequence, .n_rows = 1, .want = WantLogits::kLast});
    }
    const auto start = Clock::now();
    FATHOM_RETURN_IF_ERROR(t.runner.step(items));
    seconds.push_back(seconds_since(start));
  }
  std::sort(seconds.begin(), seconds.end());
  return decode_row(t, seconds[seconds.size() / 2], sequences[0]->length, read_bytes_per_s);
}

// Steps that a backend keeps, one behind the other: the mean, after a few that are not timed.
Result<BenchRow> time_recorded(const Timed& t, std::span<Sequence*> sequences,
                               double read_bytes_per_s) {
  for (Sequence* sequence : sequences) {
    const int32_t token[1] = {7};
    if (sequence->pending() == 0) FATHOM_RETURN_IF_ERROR(t.runner.append(*sequence, token));
  }
  // A recording serves the positions of both.
  FATHOM_RETURN_IF_ERROR(t.runner.decode_greedy(sequences, 4));
  const auto start = Clock::now();
  FATHOM_RETURN_IF_ERROR(t.runner.decode_greedy(sequences, t.options.steps));
  const double step = seconds_since(start) / static_cast<double>(t.options.steps);
  return decode_row(t, step, sequences[0]->length, read_bytes_per_s);
}

int64_t matrix(const Weight& w) { return w.empty() ? 0 : w.out() * w.in(); }

// Products of one row of a layer, without those of its attention lists and without compressors.
int64_t row_products(const LayerWeights& w, int64_t experts_per_token) {
  int64_t n = w.hc_attn.fn.elements() + w.hc_ffn.fn.elements();
  for (const Weight* m :
       {&w.wq_a, &w.wq_b, &w.wkv, &w.wo_b, &w.gate, &w.indexer.wq_b, &w.indexer.weights_proj,
        &w.engram.wkv, &w.shared.w1, &w.shared.w3, &w.shared.w2}) {
    n += matrix(*m);
  }
  n += matrix(w.wo_a);  // each row of the weight meets one group of the input
  const ExpertWeights& expert = w.experts.front();
  return n + experts_per_token * (matrix(expert.w1) + matrix(expert.w3) + matrix(expert.w2));
}

}  // namespace

double prefill_multiply_adds(const ModelConfig& config, const ModelPlan& plan,
                             const Weights& weights, int64_t n) {
  const TextConfig& text = config.text_config;
  const int64_t head_width = text.num_attention_heads * text.head_dim;
  const int64_t index_width = text.index_n_heads * text.index_head_dim;
  const int64_t pool = text.candidate_topk_blocks * text.candidate_block_size;
  double sum = static_cast<double>(matrix(weights.head));
  for (const LayerPlan& layer : plan.layers) {
    const LayerWeights& w = weights.layers[static_cast<size_t>(layer.layer)];
    const int64_t first = layer.decoder ? std::max<int64_t>(0, n - text.sliding_window) : 0;
    sum += static_cast<double>((n - first) * row_products(w, text.num_experts_per_tok));
    if (layer.owns_kv()) {
      const int64_t per_row = matrix(w.compressor.wkv) + matrix(w.compressor.wgate);
      sum += static_cast<double>(n * per_row);
      const int64_t n_entries = n / layer.ratio;
      sum += static_cast<double>(n_entries * matrix(w.compressor.wk));
    }
    for (int64_t p = first; p < n; ++p) {
      int64_t slots = std::min(p + 1, text.sliding_window);
      if (layer.ratio > 0) {
        const int64_t visible = (p + 1) / layer.ratio;
        slots += std::min(visible, text.index_topk);
        const bool restricted = layer.pool == PoolUse::kRestricted;
        const int64_t scored = restricted ? std::min(visible, pool) : visible;
        if (layer.owns_indexer()) sum += static_cast<double>(scored * index_width);
      }
      sum += 2.0 * static_cast<double>(slots * head_width);
    }
  }
  return sum;
}

namespace {

// Says what the model will take of the GPU, and refuses it where that is more than there is.
Result<void> check_memory(const std::string& folder, const RunnerOptions& run,
                          const BenchOptions& options, const GpuBounds& gpu) {
  FATHOM_ASSIGN_OR_RETURN(const ConfigFile file, read_config(folder + "/config.json"));
  FATHOM_ASSIGN_OR_RETURN(const MemoryPlan plan,
                          plan_memory(file.config, run, options.backend.numerics));
  if (options.notes) {
    std::fprintf(stderr, "bench: memory plan: %s; %s has %.2f GB and reads %.2f TB/s\n",
                 plan_line(plan).c_str(), gpu.name.c_str(),
                 static_cast<double>(gpu.memory_bytes) / 1e9, gpu.read_bytes_per_s / 1e12);
  }
  return check_plan(plan, gpu.memory_bytes);
}

Result<LoadedModel> load_with_progress(const BenchOptions& options, LoadOptions load) {
  ProgressLine reading(options.progress, "loading", "bytes");
  load.progress = [&](int64_t done, int64_t all) { reading.update(done, all); };
  return load_model(options.folder, load);
}

// A proxy is the program's own: where it is damaged, another one is as good.
Error of_proxy(Error error, const BenchOptions& options) {
  const bool damaged = error.code != ErrorCode::kExhausted && options.model.empty();
  if (damaged) error.message += "; remove " + options.folder + ", and bench writes it again";
  return error;
}

}  // namespace

Result<void> bench_model(const BenchOptions& options, const ModelSuites& suites,
                         const MachineBounds& machine, BenchRows& rows) {
  LoadOptions load;
  load.need_tokenizer = false;
  RunnerOptions run;
  run.context = options.prompt + options.steps + kWarmupSteps;
  run.n_sequences = options.batch;
  run.max_rows = std::min(options.prompt, options.rows);
  FATHOM_ASSIGN_OR_RETURN(const std::unique_ptr<Ops> ops, make_backend(options.backend));
  load.model.memory = &ops->memory();
  // The machine's bounds are those of its processor.
  const bool on_cpu = ops->memory().device() == Device::kCpu;
  GpuBounds gpu;
  if (!on_cpu) {
    FATHOM_ASSIGN_OR_RETURN(gpu, measure_gpu());
    FATHOM_RETURN_IF_ERROR(check_memory(options.folder, run, options, gpu));
  }
  const Result<LoadedModel> read = load_with_progress(options, load);
  if (!read) return of_proxy(read.error(), options);
  const LoadedModel& loaded = *read;
  FATHOM_ASSIGN_OR_RETURN(const std::unique_ptr<Runner> runner,
                          Runner::make(*loaded.model, *ops, run));
  const std::string name = options.model.empty() ? "plan " + options.plan : options.model;
  const char* numerics = options.backend.numerics == Numerics::kTrial  ? ", trial"
                         : options.backend.numerics == Numerics::kFast ? ", fast"
                                                                       : ", exact";
  const std::string where =
      on_cpu ? machine.backend + ", " + std::to_string(machine.n_threads) + " threads"
             : available_backends().front() + numerics;
  const Timed timed = {loaded, *runner, options, name + ", " + where + ", weights in memory",
                       on_cpu};
  FATHOM_CHECK(touch(*loaded.checkpoint) != 1);

  std::vector<Sequence> sequences;
  sequences.reserve(static_cast<size_t>(options.batch));
  const auto prompt = random_tokens(options.prompt, loaded.model->config().text_config.vocab_size);
  // What a GPU's first steps do once, loading kernels and making work space, is not the prefill's.
  if (suites.prefill && !on_cpu) {
    FATHOM_ASSIGN_OR_RETURN(Sequence first, runner->open());
    FATHOM_RETURN_IF_ERROR(runner->append(first, prompt));
    FATHOM_RETURN_IF_ERROR(runner->prefill(first));
    runner->close(first);
  }
  for (int64_t i = 0; i < options.batch; ++i) {
    if (options.invented) {
      FATHOM_ASSIGN_OR_RETURN(Sequence invented,
                              runner->invent(options.prompt, static_cast<uint64_t>(i)));
      sequences.push_back(std::move(invented));
      continue;
    }
    FATHOM_ASSIGN_OR_RETURN(Sequence opened, runner->open());
    sequences.push_back(std::move(opened));
    FATHOM_RETURN_IF_ERROR(runner->append(sequences.back(), prompt));
    FATHOM_ASSIGN_OR_RETURN(const BenchRow prefill,
                            time_prefill(timed, sequences.back(), on_cpu ? machine.fma_per_s : 0));
    if (suites.prefill && i == 0) rows.push_back(prefill);
  }
  if (suites.decode) {
    std::vector<Sequence*> all;
    for (Sequence& sequence : sequences) all.push_back(&sequence);
    const bool records = ops->recorder() != nullptr;
    Result<BenchRow> decode = records ? time_recorded(timed, all, gpu.read_bytes_per_s)
                                      : time_steps(timed, all, machine.read_bytes_per_s);
    if (!decode) return decode.error();
    rows.push_back(*decode);
  }
  for (Sequence& sequence : sequences) runner->close(sequence);
  return {};
}

}  // namespace fathom
