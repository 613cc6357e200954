// fathom-train: the trainer's verbs (docs/cli.md, verb `train`).

#include <ATen/ATen.h>
#include <ATen/Context.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>

#include "train/export.h"
#include "train/trainer.h"

#ifdef FATHOM_TRAIN_CUDA
#include "train/selfcheck.h"
#endif

namespace fathom::train {

namespace {

constexpr const char* kUsage =
    "usage: fathom-train run --recipe FILE.toml --data DIR --out DIR [--limit SECONDS] [--cpu]\n"
    "       fathom-train export --recipe FILE.toml --data DIR --out DIR --model DIR\n"
    "       fathom-train eval --recipe FILE.toml --data DIR --out DIR [--tokens N]\n"
    "       fathom-train logits --model DIR --data DIR --out FILE [--rows N] [--length T]\n"
    "       fathom-train speed --recipe FILE.toml --data DIR\n"
    "       fathom-train selfcheck\n";

using Flags = std::map<std::string, std::string>;

std::string flag(const Flags& flags, const char* name, const char* fallback = "") {
  const auto it = flags.find(name);
  return it == flags.end() ? fallback : it->second;
}

at::Device device_of(const Flags& flags) {
  return flags.count("cpu") == 0 && at::hasCUDA() ? at::Device(at::kCUDA, 0) : at::Device(at::kCPU);
}

ParamTypes types_of(const at::Device& device) {
  return device.is_cuda() ? ParamTypes{} : ParamTypes{at::kFloat, at::kFloat};
}

Result<std::unique_ptr<Trainer>> make(const Flags& flags) {
  FATHOM_ASSIGN_OR_RETURN(const Recipe recipe, load_recipe(flag(flags, "recipe")));
  FATHOM_ASSIGN_OR_RETURN(Dataset data, Dataset::open(flag(flags, "data")));
  const at::Device device = device_of(flags);
  return Trainer::create(recipe, std::move(data), flag(flags, "out"), device, types_of(device));
}

Result<void> run(const Flags& flags) {
  FATHOM_ASSIGN_OR_RETURN(const auto trainer, make(flags));
  FATHOM_RETURN_IF_ERROR(trainer->run(std::stod(flag(flags, "limit", "1e9"))));
  std::printf("%s at step %ld\n", trainer->finished() ? "finished" : "stopped", trainer->step());
  return {};
}

Result<void> evaluate(const Flags& flags) {
  FATHOM_ASSIGN_OR_RETURN(const auto trainer, make(flags));
  const int64_t tokens = std::stoll(flag(flags, "tokens", "262144"));
  trainer->print_scores(trainer->evaluate(tokens, false), "bf16");
  trainer->print_scores(trainer->evaluate(tokens, true), "packed");
  return {};
}

Result<void> export_to(const Flags& flags) {
  FATHOM_ASSIGN_OR_RETURN(const auto trainer, make(flags));
  return export_model(trainer->model(), trainer->params(), flag(flags, "model"));
}

Result<void> dispatch(const std::string& verb, const Flags& flags) {
  if (verb == "run") {
    return run(flags);
  }
  if (verb == "eval") {
    return evaluate(flags);
  }
  if (verb == "export") {
    return export_to(flags);
  }
#ifdef FATHOM_TRAIN_CUDA
  if (verb == "selfcheck") {
    return selfcheck();
  }
  if (verb == "speed") {
    FATHOM_ASSIGN_OR_RETURN(const Recipe recipe, load_recipe(flag(flags, "recipe")));
    FATHOM_ASSIGN_OR_RETURN(const Dataset data, Dataset::open(flag(flags, "data")));
    return speed_probe(recipe, data);
  }
#endif
  std::fputs(kUsage, stderr);
  return invalid("fathom-train: no verb `" + verb + "` in this build");
}

}  // namespace

}  // namespace fathom::train

int main(int argc, char** argv) {
  fathom::train::Flags flags;
  for (int i = 2; i < argc; ++i) {
    if (std::strncmp(argv[i], "--", 2) != 0) {
      std::fputs(fathom::train::kUsage, stderr);
      return 2;
    }
    const bool has_value = i + 1 < argc && std::strncmp(argv[i + 1], "--", 2) != 0;
    flags[argv[i] + 2] = has_value ? argv[i + 1] : "";
    i += has_value ? 1 : 0;
  }
  at::globalContext().setAllowBF16ReductionCuBLAS(false);
  const auto done = fathom::train::dispatch(argc > 1 ? argv[1] : "", flags);
  if (!done) {
    std::fprintf(stderr, "%s\n", done.error().message.c_str());
    return 1;
  }
  return 0;
}
