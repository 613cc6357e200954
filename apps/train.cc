#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <string>
#include <vector>

#include "apps/common.h"
#include "apps/numbers.h"
#include "apps/verb.h"
#include "train/corpus/data_cli.h"

namespace fathom {
namespace {

constexpr const char* kFooter =
    "Jobs, in the order of a training (docs/design/train.md)\n"
    "  data corpus --recipe FILE --dir DIR    text of the packages that tools/corpus_fetch.sh "
    "fetched\n"
    "  tokenizer --recipe FILE --dir DIR [--vocab N]\n"
    "                                         a byte-level BPE vocabulary from that text\n"
    "  data shards --recipe FILE --dir DIR --out DIR\n"
    "                                         token streams and index.json for `run`\n"
    "and, by the program fathom-train (./fathom setup --train builds it):\n"
    "  run --recipe FILE.toml --data DIR --out DIR [--limit SECONDS]\n"
    "  resume --out DIR [--limit SECONDS]     goes on with a stopped run\n"
    "  eval --out DIR                         bits a byte of the run's held-out sets\n"
    "  export --out DIR --model DIR           the run's model in the released format\n"
    "  parity [--model DIR] [--text DIR]      the engine beside the trainer's definition\n"
    "  speed --recipe FILE.toml --data DIR --out DIR\n"
    "Beside these, run and resume take --json, --quiet, --progress, --threads N and --cpu; eval "
    "and\n"
    "export --json, --quiet, --threads N and --cpu; parity --json, --quiet and --threads N; speed\n"
    "--quiet, --threads N and --cpu; data and tokenizer none of them.";

constexpr const char* kTrainerJobs[] = {"run",    "resume", "eval",     "export",
                                        "parity", "speed",  "selfcheck"};

// The trainer stands beside this program.
Result<std::string> trainer_path() {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string path = (self.parent_path() / "fathom-train").string();
  if (error || ::access(path.c_str(), X_OK) != 0) {
    return not_found(
        "train: " + path +
        ": wanted the trainer's program, found none; ./fathom setup --train builds it");
  }
  return path;
}

class TrainVerb final : public Verb {
 public:
  const char* name() const override { return "train"; }
  const char* help() const override {
    return "Data, tokenizer, training and export of a small model";
  }

  void add_options(CLI::App& app) override {
    app_ = &app;
    app.prefix_command();
    app.footer(kFooter);
  }

  std::string misuse(const TypedOptions& /*typed*/) const override {
    const std::vector<std::string> words = app_->remaining();
    const std::string job = words.empty() ? "nothing" : words.front();
    const bool known = job == "data" || job == "tokenizer" || is_trainer_job(job);
    if (known) return {};
    std::string jobs = "data, tokenizer";
    for (const std::string name : kTrainerJobs) {
      if (name != "selfcheck") jobs += ", " + name;  // of the trainer's own tests
    }
    return "train: wanted a job, one of " + jobs + ", found " + shown_value(job);
  }

  int run() override {
    const std::vector<std::string> words = app_->remaining();
    if (words.front() == "data") return train::run_data_job({words.begin() + 1, words.end()});
    if (words.front() == "tokenizer") return train::run_data_job(words);
    const Result<std::string> trainer = trainer_path();
    if (trainer) return start(*trainer, words);
    // What the jobs are can be told without the program that does them.
    if (std::ranges::find(words, "--help") == words.end()) return fail(trainer.error());
    std::puts(kFooter);
    return 0;
  }

 private:
  static bool is_trainer_job(const std::string& word) {
    return std::ranges::find(kTrainerJobs, word) != std::end(kTrainerJobs);
  }

  // Becomes the trainer, so that signals, terminal and exit status are its own.
  static int start(const std::string& trainer, const std::vector<std::string>& words) {
    std::string program = "fathom-train";
    std::vector<std::string> copies = words;
    std::vector<char*> argv = {program.data()};
    for (std::string& word : copies) argv.push_back(word.data());
    argv.push_back(nullptr);
    ::execv(trainer.c_str(), argv.data());
    return fail(io_error("train: " + trainer + ": " + std::strerror(errno)));
  }

  CLI::App* app_ = nullptr;
};

}  // namespace

std::unique_ptr<Verb> make_train() { return std::make_unique<TrainVerb>(); }

}  // namespace fathom
