// scripted_server MODEL --script FILE: the server of `fathom serve` around a scripted executor.
// Tokenizer and chat format are those of the model folder. Prints where it listens, and once it was
// drained one line of JSON: what is still held (all 0) and how answers ended.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <optional>

#include "base/file.h"
#include "scripted_executor.h"
#include "serve/server.h"
#include "watch_file.h"

namespace fathom {
namespace {

struct Flags {
  std::string model;
  std::string script;
  std::string name = "scripted";
  std::string watch;
  int64_t watch_streams = 4096;
  int64_t watch_letters = 2048;
  int port = 0;
  int64_t queue = 8192;
  bool quiet = false;
  ScriptedOptions executor;
};

void add_options(CLI::App& app, Flags* flags) {
  app.add_option("MODEL", flags->model, "Model folder")->required();
  app.add_option("--script", flags->script, "Rules (script.h)")->required();
  app.add_option("--name", flags->name, "Model name that clients use")->capture_default_str();
  app.add_option("--port", flags->port, "0: any free one")->capture_default_str();
  app.add_option("--context", flags->executor.context, "Positions")->capture_default_str();
  app.add_option("--sequences", flags->executor.n_sequences, "Answers at once")
      ->capture_default_str();
  app.add_option("--blocks", flags->executor.n_blocks, "Of 64 tokens")->capture_default_str();
  app.add_option("--rows", flags->executor.max_rows, "Of a step")->capture_default_str();
  app.add_option("--step-us", flags->executor.step_us, "Time of a step, at least")
      ->capture_default_str();
  app.add_option("--queue", flags->queue, "Requests taken in")->capture_default_str();
  app.add_option("--watch", flags->watch, "File of instants (watch_file.h)");
  app.add_option("--watch-streams", flags->watch_streams)->capture_default_str();
  app.add_option("--watch-letters", flags->watch_letters)->capture_default_str();
  app.add_flag("--quiet", flags->quiet, "No line a request");
}

void watch_with(WatchFile& file, ScriptedExecutor* executor) {
  executor->watch({.started =
                       [&file](int64_t stream) {
                         if (file.has(stream, 0)) file.started(stream) = monotonic_ns();
                       },
                   .drawn =
                       [&file](int64_t stream, int64_t k) {
                         if (file.has(stream, k)) file.drawn(stream, k) = monotonic_ns();
                       }});
}

void report(const Engine& engine) {
  engine.check();
  const EngineLoad load = engine.load();
  const EngineCounters& counters = engine.counters();
  const auto n = [&](EndReason reason) {
    return static_cast<long>(counters.finished[static_cast<size_t>(reason)]);
  };
  std::printf(
      "{\"live\":%ld,\"slots\":%ld,\"pinned_blocks\":%ld,\"stop\":%ld,\"length\":%ld,"
      "\"cancelled\":%ld,\"error\":%ld,\"tokens\":%ld,\"steps\":%ld}\n",
      static_cast<long>(load.n_live), static_cast<long>(load.n_slots),
      static_cast<long>(load.n_pinned_blocks), n(EndReason::kStop), n(EndReason::kLength),
      n(EndReason::kCancelled), n(EndReason::kError), static_cast<long>(counters.n_tokens),
      static_cast<long>(counters.n_steps));
}

Result<void> serve(const Flags& flags) {
  FATHOM_ASSIGN_OR_RETURN(const std::string rules, read_file(flags.script));
  FATHOM_ASSIGN_OR_RETURN(const Script script, Script::parse(rules));
  FATHOM_ASSIGN_OR_RETURN(const LoadedModel loaded, load_model(flags.model, {}));
  const ModelConfig& config = loaded.model->config();
  FATHOM_ASSIGN_OR_RETURN(ChatTemplate chat, ChatTemplate::load(loaded.path, config.model_type));
  ChatService service(
      loaded, std::move(chat),
      {.model_name = flags.name, .fingerprint = "scripted", .context = flags.executor.context});
  std::optional<WatchFile> file;
  if (!flags.watch.empty()) {
    FATHOM_ASSIGN_OR_RETURN(WatchFile opened,
                            WatchFile::open(flags.watch, flags.watch_streams, flags.watch_letters));
    file.emplace(std::move(opened));
  }
  ScriptedExecutor executor(script, *loaded.tokenizer, static_cast<int32_t>(config.eos_token_id),
                            flags.executor);
  if (file) watch_with(*file, &executor);
  EngineOptions options;
  options.mailbox = {.max_live = flags.queue,
                     .max_live_of_tenant = flags.queue,
                     .max_outputs = std::max<int64_t>(1024, 2 * flags.executor.n_sequences)};
  Engine engine(executor, options);
  ServerOptions transport = {.port = flags.port, .end_at_signals = true, .version = "scripted"};
  transport.max_connections = flags.queue;
  if (!flags.quiet) {
    transport.log = [](const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); };
  }
  FATHOM_ASSIGN_OR_RETURN(const std::unique_ptr<Server> server,
                          Server::listen(service, engine, transport));
  std::printf("scripted: %s at http://127.0.0.1:%d\n", flags.name.c_str(), server->port());
  std::fflush(stdout);
  server->run();
  report(engine);
  return {};
}

}  // namespace
}  // namespace fathom

int main(int argc, char** argv) {
  fathom::Flags flags;
  CLI::App app("Serves a script instead of a model");
  fathom::add_options(app, &flags);
  CLI11_PARSE(app, argc, argv);
  const fathom::Result<void> done = fathom::serve(flags);
  if (done) return 0;
  std::fprintf(stderr, "scripted_server: %s\n", done.error().message.c_str());
  return 1;
}
