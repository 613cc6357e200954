// fathom-train: the trainer's jobs (docs/cli.md, verb `train`). Results go to standard output,
// logs to standard error.

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <string>

#include "base/file.h"
#include "text/json_text.h"
#include "train/export.h"
#include "train/json_fields.h"
#include "train/speed.h"
#include "train/trainer.h"

#ifdef FATHOM_TRAIN_CUDA
#include "train/selfcheck.h"
#endif
#ifdef FATHOM_TRAIN_PARITY
#include "train/parity.h"
#endif

namespace fathom::train {

namespace {

constexpr const char* kUsage =
    "usage: fathom train JOB [--NAME VALUE ...]\n"
    "  run      --recipe FILE.toml --data DIR --out DIR [--limit SECONDS]\n"
    "           trains; DIR keeps config.json, log.csv, eval.csv and checkpoint.bin, from which "
    "the\n"
    "           next run with the same DIR goes on\n"
    "  resume   --out DIR [--limit SECONDS]          goes on with a stopped run\n"
    "  eval     --out DIR [--tokens N]               bits a byte of the run's held-out sets\n"
    "  export   --out DIR --model DIR                writes the run's model as a checkpoint\n"
    "  speed    --recipe FILE.toml --data DIR --out DIR [--steps N]\n"
#ifdef FATHOM_TRAIN_PARITY
    "  parity   [--model DIR] [--text DIR] [--passages N] [--tokens N]\n"
    "           the engine beside the differentiable definition; fails below the bar\n"
#endif
#ifdef FATHOM_TRAIN_CUDA
    "  selfcheck                                     the fused kernels against their definition\n"
#endif
    "Every job: --json (one object on standard output), --quiet, --threads N, --cpu, --help.\n"
    "resume, eval and export take --recipe and --data where they are not those of the run.\n";

class Flags {
 public:
  // A message where a word is no flag of the job.
  Result<void> read(int argc, char** argv, const std::set<std::string>& known) {
    static const std::set<std::string> kSwitches = {"cpu", "json", "quiet", "help", "progress"};
    for (int i = 2; i < argc; ++i) {
      const std::string word = argv[i];
      const std::string name = word.rfind("--", 0) == 0 ? word.substr(2) : "";
      const bool is_switch = kSwitches.count(name) != 0;
      if (!is_switch && known.count(name) == 0 && name != "threads") {
        return invalid("wanted a flag of the job, found " + word);
      }
      if (!is_switch && i + 1 == argc) {
        return invalid(word + ": wanted a value, found none");
      }
      values_[name] = is_switch ? "" : argv[++i];
    }
    return {};
  }

  bool has(const char* name) const { return values_.count(name) != 0; }
  void set(const std::string& name, const std::string& value) { values_.emplace(name, value); }
  std::string text(const char* name, const char* fallback = "") const {
    const auto it = values_.find(name);
    return it == values_.end() ? fallback : it->second;
  }
  Result<std::string> wanted(const char* name) const {
    if (!has(name) || text(name).empty()) {
      return invalid(std::string("--") + name + ": wanted a value, found none");
    }
    return text(name);
  }
  Result<double> number(const char* name, double fallback) const {
    if (!has(name)) {
      return fallback;
    }
    const std::string value = text(name);
    char* end = nullptr;
    const double out = std::strtod(value.c_str(), &end);
    if (end == value.c_str() || *end != 0 || !std::isfinite(out) || out < 1) {
      return invalid(std::string("--") + name + ": wanted a number from 1, found " + value);
    }
    return out;
  }

 private:
  std::map<std::string, std::string> values_;
};

at::Device device_of(const Flags& flags) {
  return !flags.has("cpu") && at::hasCUDA() ? at::Device(at::kCUDA, 0) : at::Device(at::kCPU);
}

ParamTypes types_of(const at::Device& device) {
  return device.is_cuda() ? ParamTypes{} : ParamTypes{at::kFloat, at::kFloat};
}

// The recipe and the data of a run stand in run.json beside its checkpoint.
Result<void> recall_run(Flags& flags, bool must_exist) {
  FATHOM_ASSIGN_OR_RETURN(const std::string out, flags.wanted("out"));
  if (must_exist && !std::filesystem::exists(out + "/checkpoint.bin")) {
    return not_found(out + "/checkpoint.bin: wanted the checkpoint of a run, found none");
  }
  if (auto stored = read_file(out + "/run.json"); stored) {
    FATHOM_ASSIGN_OR_RETURN(const Json run, parse_json(*stored));
    flags.set("recipe", text_field(run, "recipe"));
    flags.set("data", text_field(run, "data"));
  }
  return {};
}

Result<void> remember_run(const Flags& flags) {
  const auto path = [&](const char* name) {
    return json_quoted(std::filesystem::absolute(flags.text(name)).string());
  };
  return write_file_atomic(
      flags.text("out") + "/run.json",
      "{\"recipe\": " + path("recipe") + ", \"data\": " + path("data") + "}\n");
}

struct Run {
  Recipe recipe;
  std::unique_ptr<Trainer> trainer;
};

Result<Run> open_run(const Flags& flags) {
  FATHOM_ASSIGN_OR_RETURN(const std::string recipe_path, flags.wanted("recipe"));
  FATHOM_ASSIGN_OR_RETURN(const std::string data_path, flags.wanted("data"));
  FATHOM_ASSIGN_OR_RETURN(const std::string out, flags.wanted("out"));
  Run run;
  FATHOM_ASSIGN_OR_RETURN(run.recipe, load_recipe(recipe_path));
  FATHOM_ASSIGN_OR_RETURN(Dataset data, Dataset::open(data_path));
  const at::Device device = device_of(flags);
  FATHOM_ASSIGN_OR_RETURN(
      run.trainer, Trainer::create(run.recipe, std::move(data), out, device, types_of(device)));
  return run;
}

// The mean of the sets, and one member a set.
std::string scores_json(const std::vector<Score>& scores) {
  std::string sets;
  double sum = 0;
  for (const Score& score : scores) {
    sum += score.bits_per_byte;
    sets += (sets.empty() ? "" : ", ") + json_quoted(score.name) + ": " +
            json_double(score.bits_per_byte);
  }
  const std::string mean =
      scores.empty() ? "null" : json_double(sum / static_cast<double>(scores.size()));
  return "\"bits_per_byte\": " + mean + ", \"sets\": {" + sets + "}";
}

void print_result(const Trainer& trainer, const std::vector<Score>& scores) {
  std::printf("{\"step\": %ld, \"finished\": %s, \"loss\": %s, %s, \"tokens_per_s\": %.0f}\n",
              trainer.step(), trainer.finished() ? "true" : "false",
              json_double(trainer.last_loss()).c_str(), scores_json(scores).c_str(),
              trainer.tokens_per_s());
}

void show_bar(double progress) {
  constexpr int kWide = 30;
  const int full = static_cast<int>(kWide * std::min(1.0, progress));
  std::fprintf(stderr, "\r\033[K[%.*s%.*s] %3.0f %%\r", full, "##############################",
               kWide - full, "..............................", 100 * std::min(1.0, progress));
}

Result<int> run_job(Flags& flags, bool must_exist) {
  FATHOM_RETURN_IF_ERROR(recall_run(flags, must_exist));
  FATHOM_ASSIGN_OR_RETURN(const double limit, flags.number("limit", 1e9));
  FATHOM_ASSIGN_OR_RETURN(const Run run, open_run(flags));
  FATHOM_RETURN_IF_ERROR(remember_run(flags));
  Trainer& trainer = *run.trainer;
  if (!flags.has("quiet") && (flags.has("progress") || isatty(STDERR_FILENO) != 0)) {
    trainer.watch(show_bar);
  }
  FATHOM_RETURN_IF_ERROR(trainer.run(limit));
  std::vector<Score> scores;
  if (trainer.finished()) {
    scores = trainer.evaluate(run.recipe.final_eval_tokens, true);
    trainer.print_scores(scores, "packed");
  }
  if (flags.has("json")) {
    print_result(trainer, scores);
  } else {
    std::printf("%s at step %ld\n", trainer.finished() ? "finished" : "stopped", trainer.step());
  }
  return 0;
}

Result<int> eval_job(Flags& flags) {
  FATHOM_RETURN_IF_ERROR(recall_run(flags, true));
  FATHOM_ASSIGN_OR_RETURN(const double tokens, flags.number("tokens", 262144));
  FATHOM_ASSIGN_OR_RETURN(const Run run, open_run(flags));
  run.trainer->print_scores(run.trainer->evaluate(static_cast<int64_t>(tokens), false), "bf16");
  const auto packed = run.trainer->evaluate(static_cast<int64_t>(tokens), true);
  run.trainer->print_scores(packed, "packed");
  if (flags.has("json")) {
    print_result(*run.trainer, packed);
  }
  return 0;
}

Result<int> export_job(Flags& flags) {
  FATHOM_RETURN_IF_ERROR(recall_run(flags, true));
  FATHOM_ASSIGN_OR_RETURN(const std::string model, flags.wanted("model"));
  FATHOM_ASSIGN_OR_RETURN(const Run run, open_run(flags));
  FATHOM_RETURN_IF_ERROR(export_model(run.trainer->model(), run.trainer->params(), model));
  if (flags.has("json")) {
    std::printf("{\"model\": %s, \"step\": %ld}\n", json_quoted(model).c_str(),
                run.trainer->step());
  }
  return 0;
}

Result<int> speed_job(Flags& flags) {
  SpeedOptions options;
  FATHOM_ASSIGN_OR_RETURN(const std::string recipe_path, flags.wanted("recipe"));
  FATHOM_ASSIGN_OR_RETURN(options.data, flags.wanted("data"));
  FATHOM_ASSIGN_OR_RETURN(options.out, flags.wanted("out"));
  FATHOM_ASSIGN_OR_RETURN(const double steps, flags.number("steps", 4));
  FATHOM_ASSIGN_OR_RETURN(const Recipe recipe, load_recipe(recipe_path));
  options.device = device_of(flags);
  options.types = types_of(options.device);
  options.steps = static_cast<int>(steps);
  FATHOM_RETURN_IF_ERROR(speed_probe(recipe, options));
#ifdef FATHOM_TRAIN_CUDA
  if (options.device.is_cuda()) {
    word_speeds(recipe);
  }
#endif
  return 0;
}

#ifdef FATHOM_TRAIN_PARITY
Result<int> parity_job(Flags& flags) {
  ParityOptions options;
  options.model = flags.text("model", "models/fathom-34m");
  options.text = flags.text("text", "models/heldout");
  FATHOM_ASSIGN_OR_RETURN(const double passages, flags.number("passages", 32));
  FATHOM_ASSIGN_OR_RETURN(const double tokens, flags.number("tokens", 512));
  options.passages = static_cast<int64_t>(passages);
  options.tokens = static_cast<int64_t>(tokens);
  if (!flags.has("quiet")) {
    options.progress = [](const ParityReport& report) {
      std::fprintf(stderr, "passage %ld: %ld of %ld arg-max the same so far\n", report.passages,
                   report.same_top, report.positions);
    };
  }
  FATHOM_ASSIGN_OR_RETURN(const ParityReport report, measure_parity(options));
  std::fputs((flags.has("json") ? parity_json(report) : parity_text(report)).c_str(), stdout);
  return report.holds() ? 0 : 1;
}
#endif

struct Job {
  std::set<std::string> flags;
  std::function<Result<int>(Flags&)> work;
};

std::map<std::string, Job> all_jobs() {
  const std::set<std::string> run = {"recipe", "data", "out", "limit"};
  std::map<std::string, Job> jobs;
  jobs["run"] = {run, [](Flags& flags) { return run_job(flags, false); }};
  jobs["resume"] = {run, [](Flags& flags) { return run_job(flags, true); }};
  jobs["eval"] = {{"recipe", "data", "out", "tokens"}, eval_job};
  jobs["export"] = {{"recipe", "data", "out", "model"}, export_job};
  jobs["speed"] = {{"recipe", "data", "out", "steps"}, speed_job};
#ifdef FATHOM_TRAIN_PARITY
  jobs["parity"] = {{"model", "text", "passages", "tokens"}, parity_job};
#endif
#ifdef FATHOM_TRAIN_CUDA
  jobs["selfcheck"] = {{}, [](Flags&) -> Result<int> {
                         FATHOM_RETURN_IF_ERROR(selfcheck());
                         return 0;
                       }};
#endif
  return jobs;
}

int usage_error(const std::string& message) {
  std::fprintf(stderr, "fathom: train: usage: %s; see fathom-train --help\n", message.c_str());
  return 2;
}

int dispatch(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "";
  if (name == "--help" || name == "-h") {
    std::fputs(kUsage, stdout);
    return 0;
  }
  const auto jobs = all_jobs();
  const auto job = jobs.find(name);
  if (job == jobs.end()) {
    return usage_error("wanted a job, found " + (name.empty() ? "nothing" : name));
  }
  Flags flags;
  if (const auto read = flags.read(argc, argv, job->second.flags); !read) {
    return usage_error(name + ": " + read.error().message);
  }
  if (flags.has("help")) {
    std::fputs(kUsage, stdout);
    return 0;
  }
  const auto threads = flags.number("threads", 0);
  if (!threads) {
    return usage_error(threads.error().message);
  }
  if (*threads > 0) {
    at::set_num_threads(static_cast<int>(*threads));
  }
  const auto done = job->second.work(flags);
  if (!done) {
    std::fprintf(stderr, "fathom: train: %s: %s\n", name.c_str(), done.error().message.c_str());
    return 1;
  }
  return *done;
}

}  // namespace

}  // namespace fathom::train

int main(int argc, char** argv) {
  at::globalContext().setAllowBF16ReductionCuBLAS(false);
  return fathom::train::dispatch(argc, argv);
}
