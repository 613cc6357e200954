#include "apps/common.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <iostream>

#include "apps/numbers.h"
#include "apps/progress.h"
#include "text/json_output.h"
#include "text/utf8.h"

namespace fathom {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

// The first folder below models/ that holds a model, where models/ is looked for from the program
// upwards, so that a clone and an installed tree both work.
Result<std::string> shipped_model() {
  std::error_code code;
  for (fs::path at = fs::read_symlink("/proc/self/exe", code).parent_path(); at.has_relative_path();
       at = at.parent_path()) {
    if (!fs::is_directory(at / "models", code)) continue;
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(at / "models", code)) {
      if (fs::exists(entry.path() / "config.json", code)) found.push_back(entry.path().string());
    }
    std::sort(found.begin(), found.end());
    if (!found.empty()) return found.front();
  }
  return not_found("model: wanted a folder named by -m, found no models/ beside the program");
}

}  // namespace

void ModelFlags::add_to(CLI::App& app) {
  add_place(app);
  add_schedule(app);
  add_index_scores(app);
}

void ModelFlags::add_place(CLI::App& app) {
  app.add_option("-m,--model", model, "Model folder (default: the model in models/)");
  app.add_option("--backend", backend, "Where to compute")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->capture_default_str();
  app.add_option("--threads", threads, "CPU threads, 0: one for each hardware thread")
      ->check(whole_number(0, 4096))
      ->capture_default_str();
}

void ModelFlags::add_schedule(CLI::App& app) {
  context_option = app.add_option("--context", context, "Tokens that a sequence may hold")
                       ->transform(size_number(1, kPositionsMax))
                       ->capture_default_str();
  app.add_option("--mode", mode, "Schedule: every layer over every row, or as deployed")
      ->check(CLI::IsMember({"exact", "deploy"}))
      ->capture_default_str();
  restore_option = app.add_option("--restore", restore, "How windows are rebuilt after a rewind")
                       ->check(CLI::IsMember({"exact", "bounded"}))
                       ->capture_default_str();
}

void ModelFlags::add_index_scores(CLI::App& app) {
  app.add_option("--index-scores", index_scores, "Rounding of index scores")
      ->check(CLI::IsMember({"fp32", "bf16"}))
      ->capture_default_str();
}

RestoreGrade ModelFlags::restore_grade() const {
  return restore == "exact" ? RestoreGrade::kExact : RestoreGrade::kBounded;
}

void OutputFlags::add_to(CLI::App& app) {
  app.add_flag("--json", json, "Print one JSON object");
  add_words(app);
}

void OutputFlags::add_words(CLI::App& app) {
  CLI::Option* silent =
      app.add_flag("--quiet", quiet, "Nothing on standard error but a failure's line");
  app.add_flag("--progress", progress, "Show progress also where standard error is no terminal")
      ->excludes(silent);
}

bool OutputFlags::show_progress() const { return !quiet && (progress || ::isatty(2) != 0); }

Result<std::string> model_path(const std::string& flag) {
  return flag.empty() ? shipped_model() : Result<std::string>(flag);
}

BackendKind backend_kind(const std::string& name) {
  if (name == "cpu") return BackendKind::kCpu;
  return name == "cuda" ? BackendKind::kCuda : BackendKind::kAuto;
}

Result<std::unique_ptr<Ops>> open_backend(const ModelFlags& flags) {
  return make_backend({.kind = backend_kind(flags.backend), .n_threads = flags.threads});
}

namespace {

Result<LoadedModel> load_with_progress(const ModelFlags& flags, const OutputFlags& output,
                                       bool need_tokenizer, Ops& ops) {
  FATHOM_ASSIGN_OR_RETURN(const std::string path, model_path(flags.model));
  ProgressLine reading(output.show_progress(), "loading", "bytes");
  ProgressLine copying(output.show_progress(), "load weights", "bytes");  // into a GPU's memory
  LoadOptions options = {.need_tokenizer = need_tokenizer, .n_threads = flags.threads};
  options.model.index_scores =
      flags.index_scores == "bf16" ? IndexScores::kBf16 : IndexScores::kF32;
  options.model.memory = &ops.memory();
  options.progress = [&](int64_t done, int64_t all) { reading.update(done, all); };
  options.model.progress = [&](int64_t done, int64_t all) {
    reading.clear();
    copying.update(done, all);
  };
  return load_model(path, options);
}

// Want of memory for the sequences is a matter of --context, where the verb has it.
Error with_remedy(Error error, const ModelFlags& flags) {
  if (error.code != ErrorCode::kExhausted || flags.context_option == nullptr) return error;
  error.message = "--context " + std::to_string(flags.context) + ": " + error.message +
                  "; a smaller one takes less";
  return error;
}

}  // namespace

Result<Session> open_session(const ModelFlags& flags, const OutputFlags& output,
                             bool need_tokenizer, RunnerOptions asked) {
  Session session;
  FATHOM_ASSIGN_OR_RETURN(session.ops, open_backend(flags));
  FATHOM_ASSIGN_OR_RETURN(session.loaded,
                          load_with_progress(flags, output, need_tokenizer, *session.ops));
  for (const std::string& warning : session.loaded.warnings) {
    if (!output.quiet) note(session.loaded.path + "/config.json: " + warning);
  }
  asked.schedule = flags.mode == "exact" ? Schedule::kExact : Schedule::kDeploy;
  asked.context = flags.context;
  Result<std::unique_ptr<Runner>> runner = Runner::make(*session.loaded.model, *session.ops, asked);
  if (!runner) return with_remedy(runner.error(), flags);
  session.runner = std::move(*runner);
  // The default is not what somebody asked for.
  const bool asked_for = flags.context_option != nullptr && flags.context_option->count() > 0;
  if (asked_for && !output.quiet) {
    note_positions("--context", flags.context, *session.loaded.model);
  }
  return session;
}

int finish(int status) {
  std::cout.flush();
  const bool written = std::cout.good() && std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  if (written || status != 0) return status;
  return fail(io_error("standard output: wanted to write all of it, found that not all could be"));
}

std::string one_line(std::string_view text) {
  constexpr size_t kShownBytes = 6000;
  std::string out;
  size_t at = 0;
  while (at < text.size() && at < kShownBytes) {
    const Utf8Step step = utf8_step(text.substr(at));
    const bool shown = step.kind == Utf8Step::Kind::kCodePoint && step.code_point >= 0x20 &&
                       (step.code_point < 0x7f || step.code_point >= 0xa0);
    for (const char c : text.substr(at, step.length)) {
      char code[8];
      std::snprintf(code, sizeof(code), "\\x%02X", static_cast<unsigned char>(c));
      shown ? out.push_back(c) : static_cast<void>(out += code);
    }
    at += step.length;
  }
  if (at < text.size()) out += "... (" + std::to_string(text.size()) + " bytes)";
  return out;
}

int fail(const Error& error) {
  std::fprintf(stderr, "fathom: %s\n", one_line(error.message).c_str());
  return 1;
}

int wrong_usage(const std::string& message, const std::string& verb) {
  const std::string command = verb.empty() ? "fathom" : "fathom " + verb;
  std::fprintf(stderr, "fathom: usage: %s; see %s --help\n", one_line(message).c_str(),
               command.c_str());
  return 2;
}

void print_problems(const std::vector<std::string>& problems) {
  constexpr size_t kShown = 20;
  const size_t n = std::min(kShown, problems.size());
  for (size_t i = 0; i < n; ++i) std::cout << one_line(problems[i]) << "\n";
  if (n == problems.size()) return;
  std::cout << "and " << problems.size() - n << " more; --json shows all of them\n";
}

Error unsound(const std::string& where, const std::vector<std::string>& problems) {
  std::string message = where + ": wanted no problems, found " + std::to_string(problems.size());
  message += ", the first: " + problems.front();
  return invalid(message);
}

void note_positions(const std::string& option, int64_t positions, const Model& model) {
  const int64_t trained = model.config().text_config.max_position_embeddings;
  if (trained <= 0 || positions <= trained) return;
  note(option + ": " + std::to_string(positions) + " is more than max_position_embeddings " +
       std::to_string(trained) + " of the model, which was not made for positions beyond");
}

void note(const std::string& message) {
  std::fprintf(stderr, "fathom: note: %s\n", one_line(message).c_str());
}

void print_json(const json::value& value) { std::cout << json_output(value) << "\n" << std::flush; }

}  // namespace fathom
