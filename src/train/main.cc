// fathom-train: the trainer's jobs (docs/cli.md, verb `train`). Results go to standard output,
// logs to standard error.

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <map>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/job_flags.h"
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
    "  run      --recipe FILE.toml --data DIR --out DIR [--from MODEL] [--limit SECONDS]\n"
    "           trains; DIR keeps config.json, log.csv, eval.csv and checkpoint.bin, from which "
    "the\n"
    "           next run with the same DIR goes on; MODEL is a checkpoint to begin with\n"
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
    "Every job: --threads N, --quiet (nothing on standard error but a failure), --help. run, "
    "resume,\n"
    "eval, export: --json (one object on standard output). All but parity and selfcheck: --cpu. "
    "run\n"
    "and resume: --progress.\n"
    "resume, eval and export take --recipe and --data where they are not those of the run.\n"
    "The order of the steps, from nothing to a model: docs/design/train.md, \"From nothing to a "
    "model\".\n";

at::Device device_of(const JobFlags& flags) {
  return !flags.has("cpu") && at::hasCUDA() ? at::Device(at::kCUDA, 0) : at::Device(at::kCPU);
}

ParamTypes types_of(const at::Device& device) {
  return device.is_cuda() ? ParamTypes{} : ParamTypes{at::kFloat, at::kFloat};
}

// The recipe and the data of a run stand in run.json beside its checkpoint.
Result<void> recall_run(JobFlags& flags, bool must_exist) {
  const std::string out = flags.text("out");
  if (must_exist && !std::filesystem::exists(out + "/checkpoint.bin")) {
    return not_found(out + "/checkpoint.bin: wanted the checkpoint of a run, found none");
  }
  if (auto stored = read_file(out + "/run.json"); stored) {
    FATHOM_ASSIGN_OR_RETURN(const Json run, parse_json(*stored));
    flags.set("recipe", text_field(run, "recipe"));
    flags.set("data", text_field(run, "data"));
  }
  for (const char* name : {"recipe", "data"}) {
    if (flags.text(name).empty()) {
      return not_found(out + "/run.json: wanted the " + name + " of the run, found none; --" +
                       name + " names it");
    }
  }
  return {};
}

Result<void> remember_run(const JobFlags& flags) {
  const auto path = [&](const char* name) {
    return json_quoted(std::filesystem::absolute(flags.text(name)).string());
  };
  return write_file_atomic(
      flags.text("out") + "/run.json",
      "{\"recipe\": " + path("recipe") + ", \"data\": " + path("data") + "}\n");
}

Result<Dataset> open_data(const std::string& folder) {
  if (!std::filesystem::exists(folder + "/index.json")) {
    return not_found(folder + "/index.json: wanted token streams, found none; " +
                     "tools/corpus_build.sh makes them (tools/corpus_fetch.sh is its first step)");
  }
  return Dataset::open(folder);
}

struct Run {
  Recipe recipe;
  std::unique_ptr<Trainer> trainer;
};

Result<Run> open_run(const JobFlags& flags) {
  Run run;
  FATHOM_ASSIGN_OR_RETURN(run.recipe, load_recipe(flags.text("recipe")));
  FATHOM_ASSIGN_OR_RETURN(Dataset data, open_data(flags.text("data")));
  const at::Device device = device_of(flags);
  FATHOM_ASSIGN_OR_RETURN(
      run.trainer,
      Trainer::create(run.recipe, std::move(data), flags.text("out"), device, types_of(device)));
  if (const std::string from = flags.text("from"); !from.empty() && run.trainer->step() == 0) {
    FATHOM_RETURN_IF_ERROR(run.trainer->start_from(from));
  }
  run.trainer->silence(flags.has("quiet"));
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

Result<int> run_job(JobFlags& flags, bool must_exist) {
  FATHOM_RETURN_IF_ERROR(recall_run(flags, must_exist));
  FATHOM_ASSIGN_OR_RETURN(const Run run, open_run(flags));
  FATHOM_RETURN_IF_ERROR(remember_run(flags));
  Trainer& trainer = *run.trainer;
  if (!flags.has("quiet") && (flags.has("progress") || isatty(STDERR_FILENO) != 0)) {
    trainer.watch(show_bar);
  }
  FATHOM_RETURN_IF_ERROR(trainer.run(flags.number("limit", 1e9)));
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

Result<int> eval_job(JobFlags& flags) {
  FATHOM_RETURN_IF_ERROR(recall_run(flags, true));
  const int64_t tokens = flags.count("tokens", 262144);
  FATHOM_ASSIGN_OR_RETURN(const Run run, open_run(flags));
  const auto plain = run.trainer->evaluate(tokens, false);
  run.trainer->print_scores(plain, "bf16");
  const auto packed = run.trainer->evaluate(tokens, true);
  run.trainer->print_scores(packed, "packed");
  if (flags.has("json")) {
    print_result(*run.trainer, packed);
    return 0;
  }
  std::printf("%-24s %10s %10s  bits a byte\n", "set", "packed", "bf16");
  for (size_t i = 0; i < packed.size(); ++i) {
    std::printf("%-24s %10.4f %10.4f\n", packed[i].name.c_str(), packed[i].bits_per_byte,
                plain[i].bits_per_byte);
  }
  return 0;
}

Result<int> export_job(JobFlags& flags) {
  FATHOM_RETURN_IF_ERROR(recall_run(flags, true));
  const std::string model = flags.text("model");
  FATHOM_ASSIGN_OR_RETURN(const Run run, open_run(flags));
  FATHOM_RETURN_IF_ERROR(export_model(run.trainer->model(), run.trainer->params(), model));
  if (flags.has("json")) {
    std::printf("{\"model\": %s, \"step\": %ld}\n", json_quoted(model).c_str(),
                run.trainer->step());
  }
  return 0;
}

Result<int> speed_job(JobFlags& flags) {
  SpeedOptions options;
  options.data = flags.text("data");
  options.out = flags.text("out");
  FATHOM_ASSIGN_OR_RETURN(const Recipe recipe, load_recipe(flags.text("recipe")));
  FATHOM_RETURN_IF_ERROR(open_data(options.data));
  options.device = device_of(flags);
  options.types = types_of(options.device);
  options.steps = static_cast<int>(flags.count("steps", 4));
  FATHOM_RETURN_IF_ERROR(speed_probe(recipe, options));
#ifdef FATHOM_TRAIN_CUDA
  if (options.device.is_cuda()) {
    word_speeds(recipe);
  }
#endif
  return 0;
}

#ifdef FATHOM_TRAIN_PARITY
Result<int> parity_job(JobFlags& flags) {
  ParityOptions options;
  options.model = flags.text("model", "models/fathom-34m");
  options.text = flags.text("text", "models/heldout");
  options.passages = flags.count("passages", 32);
  options.tokens = flags.count("tokens", 512);
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
  std::vector<FlagRule> flags;
  std::function<Result<int>(JobFlags&)> work;
};

FlagRule text_flag(const char* name, bool required = false) {
  return {.name = name, .kind = FlagKind::kText, .required = required};
}
FlagRule count_flag(const char* name) {
  return {.name = name, .kind = FlagKind::kCount, .low = 1, .high = 1e9};
}

std::vector<FlagRule> with_switches(std::vector<FlagRule> rules,
                                    std::initializer_list<const char*> switches) {
  for (const char* name : switches) rules.push_back({.name = name, .kind = FlagKind::kSwitch});
  rules.push_back({.name = "quiet", .kind = FlagKind::kSwitch});
  rules.push_back({.name = "threads", .kind = FlagKind::kCount, .low = 1, .high = 4096});
  return rules;
}

std::map<std::string, Job> all_jobs() {
  const auto paths = [](bool required) {
    return std::vector{text_flag("recipe", required), text_flag("data", required),
                       text_flag("out", true)};
  };
  const auto with = [](std::vector<FlagRule> rules, const FlagRule& more) {
    rules.push_back(more);
    return rules;
  };
  const FlagRule limit = {.name = "limit", .kind = FlagKind::kNumber, .low = 1, .high = 1e9};
  const auto run = [&](bool fresh) {
    auto rules = with(paths(fresh), limit);
    if (fresh) rules.push_back(text_flag("from"));
    return with_switches(rules, {"json", "progress", "cpu"});
  };
  std::map<std::string, Job> jobs;
  jobs["run"] = {run(true), [](JobFlags& flags) { return run_job(flags, false); }};
  jobs["resume"] = {run(false), [](JobFlags& flags) { return run_job(flags, true); }};
  jobs["eval"] = {with_switches(with(paths(false), count_flag("tokens")), {"json", "cpu"}),
                  eval_job};
  jobs["export"] = {with_switches(with(paths(false), text_flag("model", true)), {"json", "cpu"}),
                    export_job};
  jobs["speed"] = {with_switches(with(paths(true), count_flag("steps")), {"cpu"}), speed_job};
#ifdef FATHOM_TRAIN_PARITY
  jobs["parity"] = {with_switches({text_flag("model"), text_flag("text"), count_flag("passages"),
                                   count_flag("tokens")},
                                  {"json"}),
                    parity_job};
#endif
#ifdef FATHOM_TRAIN_CUDA
  jobs["selfcheck"] = {with_switches({}, {}), [](JobFlags&) -> Result<int> {
                         FATHOM_RETURN_IF_ERROR(selfcheck());
                         return 0;
                       }};
#endif
  return jobs;
}

int usage_error(const std::string& command, const std::string& message) {
  std::fputs(usage_line(command, message).c_str(), stderr);
  return kWrongUsage;
}

int dispatch(const std::vector<std::string>& words) {
  const std::string name = words.empty() ? "" : words.front();
  if (name == "--help" || name == "-h") {
    std::fputs(kUsage, stdout);
    return 0;
  }
  const auto jobs = all_jobs();
  const auto job = jobs.find(name);
  if (job == jobs.end()) {
    return usage_error("train", "wanted a job, found " + (name.empty() ? "nothing" : name));
  }
  auto flags = JobFlags::read({words.begin() + 1, words.end()}, job->second.flags);
  if (!flags) return usage_error("train " + name, flags.error().message);
  if (flags->has("help")) {
    std::fputs(kUsage, stdout);
    return 0;
  }
  if (flags->has("quiet") && flags->has("progress")) {
    return usage_error("train " + name, "wanted one of --quiet and --progress, found both");
  }
  if (flags->has("threads")) at::set_num_threads(static_cast<int>(flags->count("threads", 1)));
  const auto done = job->second.work(*flags);
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
  return fathom::train::dispatch({argv + std::min(argc, 1), argv + argc});
}
