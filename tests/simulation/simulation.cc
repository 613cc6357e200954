#include "simulation.h"

#include <algorithm>
#include <map>

#include "engine/engine.h"
#include "hash_executor.h"

namespace fathom {
namespace {

constexpr int64_t kTicksMax = 20'000;

// What a client knows of one of its requests.
struct Client {
  Request request;
  std::vector<std::vector<int32_t>> answers;  // by choice
  int64_t n_open = 0;
  bool cancelled = false;
};

class Simulation {
 public:
  explicit Simulation(uint64_t seed)
      : seed_(seed),
        random_(seed * 2 + 1),
        hash_(random_hash()),
        executor_(hash_),
        options_(random_options()),
        engine_(executor_, options_) {
    for (int i = 0; i < 3; ++i) documents_.push_back(random_tokens(300));
  }

  SimulationResult run() {
    int64_t n_left = 10 + below(25);
    while (result_.failure.empty() && (n_left > 0 || engine_.tick(now_us_) || busy())) {
      if (n_left > 0 && below(3) == 0) n_left -= submit() ? 1 : 0;
      if (below(12) == 0) cancel();
      if (n_left > 0) engine_.tick(now_us_);
      if (below(3) != 0) read();
      engine_.check();
      bounds();
      now_us_ += below(2000);
      if (++result_.n_ticks > kTicksMax) fail("no end", -1);
    }
    if (result_.failure.empty()) finish();
    result_.n_rows = engine_.counters().n_rows;
    result_.n_parked = engine_.counters().n_parked;
    result_.n_dropped = engine_.counters().n_dropped;
    result_.n_copied = engine_.cache().counters().copied;
    result_.n_evicted = engine_.cache().counters().evicted;
    return result_;
  }

 private:
  int64_t below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }

  HashOptions random_hash() {
    HashOptions hash = {.deploy = below(2) == 0, .window = 2 + below(6), .seed = seed_};
    hash.n_sequences = 1 + below(5);
    hash.n_blocks = 8 + below(20);
    hash.max_rows = hash.window + below(40);
    hash.failure_rate = below(4) == 0 ? 0.02 : 0;
    return hash;
  }

  EngineOptions random_options() {
    EngineOptions options;
    options.mailbox = {.max_live = 3 + below(12),
                       .max_live_of_tenant = 2 + below(8),
                       .max_outputs = 2 + below(12)};
    options.scheduler.aging_us = 5000;
    options.scheduler.min_run_us = below(2) == 0 ? 0 : 4000;
    options.scheduler.min_prefill_rows = 1 + below(8);
    options.scheduler.max_parked = below(4);
    options.block_cost = {.first = 1, .slope = 0.1};
    options.max_unsent = 1 + below(8);
    return options;
  }

  std::vector<int32_t> random_tokens(int64_t n) {
    std::vector<int32_t> tokens;
    for (int64_t i = 0; i < n; ++i) tokens.push_back(static_cast<int32_t>(below(kPoisonToken)));
    return tokens;
  }

  Request random_request() {
    Request request;
    const int64_t tenant = below(3);
    request.tenant = static_cast<TenantId>(tenant);
    request.tenant_salt = "salt " + std::to_string(tenant);
    request.tenant_weight = static_cast<double>(1 + tenant);
    request.priority = static_cast<int>(below(3));
    if (below(6) == 0) request.deadline_us = now_us_ + 1 + below(100'000);
    const std::vector<int32_t>& document = documents_[static_cast<size_t>(below(3))];
    // Often cut at a block edge or one beside it.
    int64_t n_shared = below(static_cast<int64_t>(document.size()));
    if (below(2) == 0) n_shared = std::clamp<int64_t>(n_shared / 64 * 64 + below(3) - 1, 0, 299);
    request.prompt.assign(document.begin(), document.begin() + n_shared);
    for (const int32_t token : random_tokens(1 + below(20))) request.prompt.push_back(token);
    if (below(40) == 0) request.prompt.push_back(kPoisonToken);
    request.max_tokens = 1 + below(below(4) == 0 ? 120 : 12);
    if (below(3) == 0) {
      for (int32_t id = 0; id < 40; ++id) request.stop_ids.push_back(id);
    }
    request.sampling.seed = static_cast<uint64_t>(below(100));
    if (below(5) == 0) request.n_choices = 1 + below(hash_.n_sequences);
    if (below(4) == 0) request.restore = RestoreGrade::kBounded;
    return request;
  }

  bool submit() {
    Client client = {.request = random_request()};
    client.n_open = client.request.n_choices;
    client.answers.resize(static_cast<size_t>(client.request.n_choices));
    const Result<RequestId> id = engine_.submit(client.request);
    if (!id) {
      ++result_.n_refused;
      return id.error().code == ErrorCode::kInvalid;
    }
    ++result_.n_requests;
    clients_.emplace(*id, std::move(client));
    return true;
  }

  void cancel() {
    if (clients_.empty()) return;
    auto it = clients_.begin();
    std::advance(it, below(static_cast<int64_t>(clients_.size())));
    it->second.cancelled = true;
    engine_.cancel(it->first);
  }

  bool busy() const { return engine_.mailbox().n_outputs() > 0; }

  void read() {
    for (Output& output : engine_.take_outputs(static_cast<size_t>(1 + below(6)))) take(output);
  }

  void take(const Output& output) {
    const auto found = clients_.find(output.request);
    if (found == clients_.end()) return fail("an output for nobody", output.choice);
    Client& client = found->second;
    auto& answer = client.answers[static_cast<size_t>(output.choice)];
    for (const SampledToken& token : output.tokens) answer.push_back(token.id);
    if (output.finish == FinishReason::kNone) return;
    compare(client, output, answer);
    if (--client.n_open == 0) clients_.erase(found);
  }

  void compare(const Client& client, const Output& output, const std::vector<int32_t>& answer) {
    const Request& request = client.request;
    const Usage& usage = output.usage;
    result_.n_cached_tokens += usage.cached_tokens;
    result_.n_replayed_tokens += usage.replayed_tokens;
    if (output.finish == FinishReason::kCancelled && !client.cancelled) {
      fail("cancelled by nobody", output.choice);
    }
    if (output.finish == FinishReason::kError) {
      ++result_.n_failed;
      const bool poison = request.prompt.back() == kPoisonToken;
      if (!poison && hash_.failure_rate == 0) fail("lost: " + output.error, output.choice);
    }
    if (!usage.exact) {
      ++result_.n_bounded;
      if (request.restore == RestoreGrade::kExact) fail("bounded state", output.choice);
      return;
    }
    const int64_t room = hash_.context - static_cast<int64_t>(request.prompt.size());
    std::vector<int32_t> want =
        hash_answer(hash_, request.prompt, std::min(request.max_tokens, room),
                    request.sampling.seed + static_cast<uint64_t>(output.choice));
    FinishReason reason = FinishReason::kLength;
    const auto stop = std::ranges::find_if(want, [&](int32_t id) {
      return std::ranges::find(request.stop_ids, id) != request.stop_ids.end();
    });
    if (stop != want.end()) {
      want.erase(stop, want.end());
      reason = FinishReason::kStop;
    }
    const bool whole =
        output.finish == FinishReason::kStop || output.finish == FinishReason::kLength;
    if (whole && output.finish != reason) fail("ended for another reason", output.choice);
    if (!whole && answer.size() <= want.size()) want.resize(answer.size());
    if (answer != want) fail("another answer than alone", output.choice);
    ++(whole ? result_.n_compared : result_.n_partial);
  }

  void bounds() {
    const Mailbox& mailbox = engine_.mailbox();
    if (mailbox.n_live() > options_.mailbox.max_live) fail("too many live", -1);
    if (mailbox.n_outputs() > options_.mailbox.max_outputs) fail("too many outputs", -1);
  }

  void finish() {
    const EngineLoad load = engine_.load();
    if (!clients_.empty()) fail("a request without an end", -1);
    if (load.n_waiting + load.n_parked + load.n_running + load.n_live != 0) fail("tasks left", -1);
    if (load.n_slots != 0) fail("slots leaked", -1);
    if (load.n_pinned_blocks != 0) fail("blocks leaked", -1);
    if (engine_.mailbox().n_live() != 0) fail("live requests left", -1);
  }

  void fail(const std::string& what, int64_t choice) {
    if (!result_.failure.empty()) return;
    result_.failure = "seed " + std::to_string(seed_) + ", tick " +
                      std::to_string(result_.n_ticks) + ", choice " + std::to_string(choice) +
                      ": " + what;
  }

  uint64_t seed_;
  std::mt19937_64 random_;
  HashOptions hash_;
  HashExecutor executor_;
  EngineOptions options_;
  Engine engine_;
  std::vector<std::vector<int32_t>> documents_;
  std::map<RequestId, Client> clients_;
  int64_t now_us_ = 1;
  SimulationResult result_;
};

}  // namespace

void SimulationResult::add(const SimulationResult& other) {
  if (failure.empty()) failure = other.failure;
  n_requests += other.n_requests;
  n_refused += other.n_refused;
  n_ticks += other.n_ticks;
  n_rows += other.n_rows;
  n_compared += other.n_compared;
  n_partial += other.n_partial;
  n_bounded += other.n_bounded;
  n_failed += other.n_failed;
  n_cached_tokens += other.n_cached_tokens;
  n_replayed_tokens += other.n_replayed_tokens;
  n_parked += other.n_parked;
  n_dropped += other.n_dropped;
  n_copied += other.n_copied;
  n_evicted += other.n_evicted;
}

SimulationResult simulate(uint64_t seed) { return Simulation(seed).run(); }

}  // namespace fathom
