#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "apps/common.h"
#include "apps/verb.h"
#include "train/corpus/data_cli.h"

namespace fathom {
namespace {

constexpr const char* kFooter =
    "Jobs\n"
    "  data corpus --recipe FILE --dir DIR    text of the packages that tools/corpus_build.sh "
    "fetched\n"
    "  data shards --recipe FILE --dir DIR --out DIR\n"
    "                                         token streams and index.json for `run`\n"
    "  tokenizer --recipe FILE --dir DIR [--vocab N]\n"
    "                                         a byte-level BPE vocabulary from that text\n"
    "and, by the program fathom-train (./fathom setup --train builds it):\n"
    "  run --recipe FILE.toml --data DIR --out DIR [--limit SECONDS]\n"
    "  resume --out DIR [--limit SECONDS]     goes on with a stopped run\n"
    "  eval --out DIR                         bits a byte of the run's held-out sets\n"
    "  export --out DIR --model DIR           the run's model in the released format\n"
    "  parity [--model DIR] [--text DIR]      the engine beside the trainer's definition\n"
    "  speed --recipe FILE.toml --data DIR --out DIR\n"
    "Jobs of fathom-train take --json, --quiet, --progress, --threads N and --cpu.";

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

  int run() override {
    const std::vector<std::string> words = app_->remaining();
    if (words.empty()) {
      std::fputs("fathom: usage: train: wanted a job, found nothing; see fathom train --help\n",
                 stderr);
      return 2;
    }
    if (words.front() == "data" || words.front() == "tokenizer") return run_data(words);
    const Result<std::string> trainer = trainer_path();
    if (!trainer) return fail(trainer.error());
    return start(*trainer, words);
  }

 private:
  static int run_data(std::vector<std::string> words) {
    if (words.front() == "data") words.erase(words.begin());
    if (!words.empty() && words.front() == "--help") {
      std::puts(kFooter);
      return 0;
    }
    const Result<void> done = train::run_data_job(words);
    if (done) return 0;
    return fail(Error{done.error().code, "train: " + done.error().message});
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
