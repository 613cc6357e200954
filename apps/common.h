#pragma once

// What several verbs share: how a model is named and opened, how failures and results are printed.

#include <boost/json.hpp>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/load.h"
#include "engine/runner.h"
#include "ops/backends.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace fathom {

// Flags of every verb that runs a model, with the defaults of the command line.
struct ModelFlags {
  std::string model;  // empty: the model shipped in models/
  std::string backend = "auto";
  std::string index_scores = "fp32";
  std::string mode = "deploy";
  std::string restore = "bounded";
  int threads = 0;
  int64_t context = 4096;

  const CLI::Option* context_option = nullptr;
  const CLI::Option* restore_option = nullptr;

  void add_to(CLI::App& app);        // all of the following
  void add_place(CLI::App& app);     // model, backend, threads
  void add_schedule(CLI::App& app);  // context, mode, restore
  void add_index_scores(CLI::App& app);
  RestoreGrade restore_grade() const;
};

// Output switches.
struct OutputFlags {
  bool json = false;
  bool quiet = false;
  bool progress = false;

  void add_to(CLI::App& app);     // json, quiet, progress
  void add_words(CLI::App& app);  // quiet, progress: for what has no result to print
  bool show_progress() const;     // on a terminal, or asked for
};

// A loaded model with its backend and pools.
struct Session {
  std::unique_ptr<Ops> ops;  // outlives what lies in its memory
  LoadedModel loaded;
  std::unique_ptr<Runner> runner;
};

// The folder that the flags name, or the shipped model.
Result<std::string> model_path(const std::string& flag);
BackendKind backend_kind(const std::string& name);  // auto, cpu, cuda
Result<std::unique_ptr<Ops>> open_backend(const ModelFlags& flags);

// `asked` gives what the flags do not: rows of a step and of logits, open sequences. Shows the
// progress of loading as `output` says.
Result<Session> open_session(const ModelFlags& flags, const OutputFlags& output,
                             bool need_tokenizer, RunnerOptions asked);

// Text that may hold anything as one line of at most some thousand bytes: control characters and
// ill-formed bytes as \xHH.
std::string one_line(std::string_view text);

// Prints "fathom: MESSAGE" to standard error and gives exit status 1.
int fail(const Error& error);
// Prints "fathom: usage: MESSAGE; see fathom VERB --help" to standard error and gives exit
// status 2. `verb` may be empty.
int wrong_usage(const std::string& message, const std::string& verb);
// Prints the first problems of a report, and how many more there are, to standard output.
void print_problems(const std::vector<std::string>& problems);
// What a report of problems, one at least, comes to.
Error unsound(const std::string& where, const std::vector<std::string>& problems);
// Notes that an option asks for more positions than the model was made for.
void note_positions(const std::string& option, int64_t positions, const Model& model);
// Prints "fathom: note: MESSAGE" to standard error.
void note(const std::string& message);
// The exit status of a verb that ended with `status`: 1 where standard output did not take all.
int finish(int status);
// Prints one JSON object (text/json_output.h) and a newline to standard output.
void print_json(const boost::json::value& value);

}  // namespace fathom
