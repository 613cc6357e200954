#pragma once

// What several verbs share: how a model is named and opened, how failures and results are printed.

#include <boost/json.hpp>
#include <memory>
#include <string>

#include "base/result.h"
#include "engine/load.h"
#include "engine/runner.h"
#include "ops/backends.h"

namespace CLI {
class App;
}

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

  void add_to(CLI::App& app);
  RestoreGrade restore_grade() const;
};

// Output switches.
struct OutputFlags {
  bool json = false;
  bool quiet = false;
  bool progress = false;

  void add_to(CLI::App& app);
  bool show_progress() const;  // on a terminal, or asked for
};

// A loaded model with its backend and pools.
struct Session {
  std::unique_ptr<Ops> ops;  // outlives what lies in its memory
  LoadedModel loaded;
  std::unique_ptr<Runner> runner;
};

// The folder that the flags name, or the shipped model.
Result<std::string> model_path(const std::string& flag);
Result<std::unique_ptr<Ops>> open_backend(const ModelFlags& flags);

// `asked` gives what the flags do not: rows of a step and of logits, open sequences. Shows the
// progress of loading as `output` says.
Result<Session> open_session(const ModelFlags& flags, const OutputFlags& output,
                             bool need_tokenizer, RunnerOptions asked);

// Prints "fathom: MESSAGE" to standard error and gives exit status 1.
int fail(const Error& error);
// The exit status of a verb that ended with `status`: 1 where standard output did not take all.
int finish(int status);
// Prints one JSON object and a newline to standard output.
void print_json(const boost::json::value& value);

}  // namespace fathom
