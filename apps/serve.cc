
#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>

#include "apps/common.h"
#include "apps/input.h"
#include "apps/numbers.h"
#include "apps/serve_flags.h"
#include "apps/server_log.h"
#include "apps/tier_flags.h"
#include "apps/verb.h"
#include "apps/version.h"
#include "base/clock.h"
#include "base/flags.h"
#include "checkpoint/checkpoint.h"
#include "engine/block_cost.h"
#include "engine/model_executor.h"
#include "serve/server.h"
#include "text/token_trie.h"

namespace fathom {
namespace {

constexpr uint64_t kKeysBytesMax = 1 << 20;
constexpr char kKeyVariable[] = "FATHOM_API_KEY";
constexpr int64_t kPromptLogitRows = 64;  // a step, for prompt_logprobs: 33 MB of 129,280 logits

// As it stands in a URL.
std::string shown_host(const std::string& host) {
  return host.find(':') == std::string::npos ? host : "[" + host + "]";
}

class ServeVerb final : public Verb {
 public:
  const char* name() const override { return "serve"; }
  const char* help() const override { return "Serve a model over HTTP"; }

  void add_options(CLI::App& app) override {
    app_ = &app;
    app.add_option(
           "--listen", listen_,
           "Where to listen: an IP address (IPv6 in brackets) or localhost, and a port of 0 "
           "to 65535; 0: any free one")
        ->type_name("HOST:PORT")
        ->capture_default_str();
    app.add_option("--name", name_, "Model name that clients use (default: the folder's)")
        ->check([](const std::string& name) {
          return one_line(name) == name ? std::string()
                                        : "wanted a line of UTF-8, found " + shown_value(name);
        });
    app.add_option("--effort", effort_,
                   "Reasoning effort of calls that name none, 0: without reasoning")
        ->check(whole_number(0, kEffortMax))
        ->capture_default_str();
    app.add_option("--sequences", sequences_, "Answers computed at once")
        ->check(whole_number(1, 4096))
        ->capture_default_str();
    app.add_option("--rows", rows_, "Rows of a step")
        ->check(whole_number(1, int64_t{1} << 20))
        ->capture_default_str();
    app.add_option("--blocks", blocks_, "KV blocks of 64 tokens, 0: a context for each sequence")
        ->transform(size_number(0, int64_t{1} << 40))
        ->capture_default_str();
    app.add_option("--queue", queue_, "Requests taken in, computed ones among them")
        ->check(whole_number(1, int64_t{1} << 20))
        ->capture_default_str();
    app.add_option("--step-ms", step_ms_, "Time of a step that prompts share with answers")
        ->check(whole_number(1, 60'000))
        ->capture_default_str();
    app.add_option("--drain-s", drain_s_, "Seconds that what is live has to end at a stop")
        ->check(whole_number(0, 24 * 3600))
        ->capture_default_str();
    app.add_option(
           "--keys", keys_,
           "Keys that are admitted, a TOML file that SIGHUP has read again (default: anybody "
           "is)")
        ->type_name("FILE");
    new_key_.add_to(app);
    app.add_option("--tls-cert", tls_cert_, "Serve HTTPS with this certificate chain, PEM")
        ->type_name("FILE");
    app.add_option("--tls-key", tls_key_, "The certificate's key, PEM")->type_name("FILE");
    app.add_option("--session-bytes", session_bytes_,
                   "Host memory for the states that turns go on from, 0: none")
        ->transform(size_number(0, int64_t{1} << 40))
        ->capture_default_str();
    app.add_option("--session-ttl", session_ttl_, "Seconds that such a state is kept unused")
        ->check(whole_number(1, 7 * 24 * 3600))
        ->capture_default_str();
    transport_.add_to(app);
    tiers_.add_to(app);
    flags_.add_to(app);
    output_.add_to(app);
    app.get_option("--json")->needs(new_key_.option());
  }

  std::string misuse(const TypedOptions& typed) const override {
    if (new_key_.given()) return new_key_.misuse(*app_, typed);
    if (tls_cert_.empty() != tls_key_.empty()) {
      return "--tls-cert, --tls-key: wanted both or none, found one";
    }
    if (!tiers_.windows.empty() && session_bytes_ == 0) {
      return "--windows: wanted it with --session-bytes above 0, found 0";
    }
    ServerOptions options;
    const Result<void> read = read_address(&options);
    return read ? std::string() : read.error().message;
  }

  int run() override {
    const Result<void> done = new_key_.given() ? new_key_.print(output_) : serve();
    return done ? 0 : fail(done.error());
  }

 private:
  Result<KeyRing> admitted() const {
    KeyRing ring;
    if (!keys_.empty()) {
      FATHOM_ASSIGN_OR_RETURN(const std::string text, read_text(keys_, kKeysBytesMax));
      FATHOM_ASSIGN_OR_RETURN(ring, read_keys(text, keys_));
    }
    const std::optional<std::string> secret = secret_of_environment(kKeyVariable);
    if (!secret) return ring;
    if (secret->empty()) {
      return invalid(std::string(kKeyVariable) +
                     ": wanted a key or no such variable, found it set and empty");
    }
    Result<Tenant> tenant = only_tenant(*secret);
    const Result<void> added = tenant ? ring.add(std::move(*tenant)) : tenant.error();
    if (!added) return invalid(std::string(kKeyVariable) + ": " + added.error().message);
    return ring;
  }

  Result<void> serve() {
    ServerOptions options = {
        .end_at_signals = true, .version = FATHOM_VERSION, .build = build_facts()};
    transport_.apply(options);
    FATHOM_RETURN_IF_ERROR(read_address(&options));
    FATHOM_ASSIGN_OR_RETURN(options.keys, admitted());
    if (!keys_.empty()) options.read_keys = [this] { return admitted(); };
    options.tls_certificate = tls_cert_;
    options.tls_key = tls_key_;
    options.drain_ms = drain_s_ * 1000;
    FATHOM_ASSIGN_OR_RETURN(Session session,
                            open_session(flags_, output_, true,
                                         {.n_sequences = sequences_,
                                          .n_blocks = blocks_,
                                          .max_rows = rows_,
                                          .max_logit_rows = sequences_ + kPromptLogitRows}));
    const LoadedModel& loaded = session.loaded;
    FATHOM_ASSIGN_OR_RETURN(ChatTemplate chat,
                            ChatTemplate::load(loaded.path, loaded.model->config().model_type));
    const std::string name =
        name_.empty() ? std::filesystem::path(loaded.path).filename().string() : name_;
    ChatService service(loaded, std::move(chat),
                        {.model_name = name,
                         .fingerprint = std::string("fathom-") + FATHOM_VERSION,
                         .context = flags_.context,
                         .restore = flags_.restore_grade(),
                         .effort = effort_,
                         .n_choices_max = sequences_});
    ModelExecutor executor(*session.runner, loaded.tokenizer->vocab_size());
    const TokenTrie tokens(*loaded.tokenizer);
    EngineOptions of_engine = engine_options(loaded, tokens);
    FATHOM_ASSIGN_OR_RETURN(const OpenTiers tiers,
                            tiers_.open(session, flags_, output_.quiet, executor, &of_engine));
    Engine engine(executor, of_engine);
    if (!output_.quiet) {
      options.log = log_line;
    }
    FATHOM_ASSIGN_OR_RETURN(const std::unique_ptr<Server> server,
                            Server::listen(service, engine, options));
    if (server->unguarded()) {
      note("listens on " + options.host + " without keys: whoever reaches it may use it (--keys)");
    }
    std::printf("fathom: %s at http%s://%s:%d\n", one_line(name).c_str(),
                tls_cert_.empty() ? "" : "s", shown_host(options.host).c_str(), server->port());
    std::fflush(stdout);
    server->run();
    return {};
  }

  EngineOptions engine_options(const LoadedModel& loaded, const TokenTrie& tokens) const {
    EngineOptions options;
    options.tokens = &tokens;
    // Two steps' outputs, so that a full outbox never holds up a step's tokens until the next.
    options.mailbox = {.max_live = queue_,
                       .max_live_of_tenant = queue_,
                       .max_outputs = std::max<int64_t>(1024, 2 * sequences_)};
    options.sessions = {.max_bytes = session_bytes_, .ttl_us = session_ttl_ * 1'000'000};
    options.scheduler.step_us_max = step_ms_ * 1000;
    options.clock_us = [] { return static_cast<int64_t>(steady_seconds() * 1e6); };
    options.restore_us_max = tiers_.restore_s * 1'000'000;
    // A step may take long, and reads end between steps only: as many as 600 MB/s need at 100 ms.
    options.restore_reads_max = 1024;
    options.key_root.spec = loaded.model->kv_spec().id();
    options.block_cost = block_cost(encoder_cost(loaded.model->config()));
    return options;
  }

  Result<void> read_address(ServerOptions* options) const {
    const size_t colon = listen_.rfind(':');
    const std::string port = colon == std::string::npos ? "" : listen_.substr(colon + 1);
    const char* end = port.data() + port.size();
    uint16_t number = 0;
    const auto [read, error] = std::from_chars(port.data(), end, number);
    if (port.empty() || error != std::errc() || read != end) {
      return invalid("--listen: wanted HOST:PORT with a port of 0 to 65535, found " +
                     shown_value(listen_));
    }
    options->port = number;
    FATHOM_ASSIGN_OR_RETURN(options->host, listen_address(listen_.substr(0, colon)));
    return {};
  }

  const CLI::App* app_ = nullptr;
  ModelFlags flags_;
  TierFlags tiers_;
  TransportFlags transport_;
  NewKeyFlags new_key_;
  OutputFlags output_;
  std::string listen_ = "127.0.0.1:8000";
  std::string name_;
  int effort_ = kEffortHigh;
  std::string keys_;
  std::string tls_cert_;
  std::string tls_key_;
  int64_t sequences_ = 8;
  int64_t rows_ = 256;
  int64_t blocks_ = 0;
  int64_t queue_ = 256;
  int64_t step_ms_ = 100;
  int64_t session_bytes_ = int64_t{2} << 30;
  int64_t session_ttl_ = 600;
  int64_t drain_s_ = 30;
};

}  // namespace

std::unique_ptr<Verb> make_serve() { return std::make_unique<ServeVerb>(); }

}  // namespace fathom
