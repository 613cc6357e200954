#include "simulation.h"

#include <algorithm>
#include <map>
#include <memory>

#include "engine/engine.h"
#include "hash_executor.h"
#include "scenario.h"

namespace fathom {
namespace {

constexpr int64_t kTicksMax = 20'000;
constexpr size_t kConversationMax = 360;  // tokens of a conversation that goes on
constexpr int64_t kUnreadMax = 16;        // tokens that wait for a slow client before it is let go

// What a client knows of one of its requests.
struct Client {
  Request request;
  ClientKind kind = ClientKind::kReader;
  std::vector<std::vector<int32_t>> answers;  // by choice
  int64_t n_open = 0;
  int64_t n_unread = 0;
  bool cancelled = false;
  size_t life = 0;  // index into Simulation::lives_
};

// What is remembered of a request after its end, for bounds on waiting and on hits.
struct Life {
  size_t tenant = 0;
  std::vector<int32_t> prompt;
  std::vector<std::vector<int32_t>> answers;  // by choice
  int64_t submit_us = 0;                      // by the steady clock
  int64_t end_us = -1;
  int64_t virtual_arrival_us = 0;
  int64_t first_step = 0;
  int64_t end_step = -1;      // -1: still live
  int64_t n_steps_alone = 0;  // about what it takes with the engine to itself
  bool measured = false;      // it ran to its own end and was read all the time
};

class Simulation {
 public:
  explicit Simulation(uint64_t seed)
      : seed_(seed), scenario_(seed), hash_(scenario_.hash()), options_(scenario_.engine()) {
    executor_ = std::make_unique<HashExecutor>(hash_);
    if (scenario_.tier()) add_tiers(*scenario_.tier());
    if (scenario_.states()) add_states(*scenario_.states());
    engine_ = std::make_unique<Engine>(*executor_, options_);
  }

  SimulationResult run() {
    int64_t n_left = 10 + scenario_.below(25);
    while (result_.failure.empty() && (n_left > 0 || engine_->tick(now_us_) || busy())) {
      if (n_left > 0 && scenario_.one_in(3)) n_left -= submit() ? 1 : 0;
      if (scenario_.one_in(25)) cancel();
      if (n_left > 0) engine_->tick(now_us_);
      if (!scenario_.one_in(3)) read();
      odd_clients();
      engine_->check();
      bounds();
      const int64_t step_us = scenario_.clock_step_us();
      now_us_ += step_us;
      steady_us_ += std::max<int64_t>(0, step_us);
      if (tier_) tier_->set_time(steady_us_);
      if (states_) states_->set_time(steady_us_);
      if (scenario_.restarts()) restart();
      if (++result_.n_ticks > kTicksMax) fail("no end", -1);
    }
    count();
    if (result_.failure.empty()) finish();
    if (tier_) result_.n_bad = tier_->counters().bad;
    if (fast_) result_.n_bad += fast_->counters().bad;
    return result_;
  }

 private:
  void add_tiers(const TierScenario& tiers) {
    const int64_t bytes = executor_->blocks().block_bytes() + HostTier::overhead_bytes();
    if (tiers.fast_blocks > 0) {
      fast_ = std::make_unique<FaultyTier>(tiers.fast_blocks * bytes, tiers.fast_faults);
      options_.tiers.push_back({"fast", fast_.get()});
    }
    tier_ = std::make_unique<FaultyTier>(tiers.n_blocks * bytes, tiers.faults);
    options_.tiers.push_back({"faulty", tier_.get()});
    options_.restore_us_max = tiers.restore_us_max;
    options_.restore_reads_max = tiers.restore_reads_max;
  }

  void add_states(const StateScenario& states) {
    states_ = std::make_unique<FaultyStateTier>(states.faults);
    options_.states = states_.get();
    options_.states_us_max = states.states_us_max;
  }

  // Of the engine that ends.
  void count() {
    const EngineCounters& counters = engine_->counters();
    n_steps_before_ += counters.n_steps;
    result_.n_rows += counters.n_rows;
    result_.n_injected += executor_->n_injected();
    result_.n_failed_copies += executor_->n_failed_copies();
    result_.n_parked += counters.n_parked;
    result_.n_dropped += counters.n_dropped;
    result_.n_overtaken += counters.n_overtaken;
    result_.n_restores += counters.n_restores;
    result_.n_cut_restores += counters.n_cut_restores;
    result_.n_late_restores += counters.n_late_restores;
    result_.n_restored_tokens += counters.restored_tokens;
    result_.n_fetches += counters.n_fetches;
    result_.n_fetched_states += counters.n_fetched_states;
    result_.n_unfit_states += counters.n_unfit_states;
    result_.n_late_fetches += counters.n_late_fetches;
    const SessionCounters& sessions = engine_->sessions().counters();
    result_.n_states_kept += sessions.kept;
    result_.n_states_used += sessions.used;
    result_.n_states_evicted += sessions.evicted;
    result_.n_states_expired += sessions.expired;
    result_.n_copied += engine_->cache().counters().copied;
    result_.n_evicted += engine_->cache().counters().evicted;
  }

  // Whoever is live is lost, and so is all but what the slow tier has.
  void restart() {
    count();
    ++result_.n_restarts;
    for (const auto& [id, client] : clients_) {
      Life& life = lives_[client.life];
      life.end_step = n_steps_before_;
      life.end_us = steady_us_;
    }
    clients_.clear();
    engine_.reset();
    executor_ = std::make_unique<HashExecutor>(hash_);
    if (fast_) {
      fast_ =
          std::make_unique<FaultyTier>(fast_->counters().max_bytes, scenario_.tier()->fast_faults);
      options_.tiers[0].tier = fast_.get();
    }
    if (states_) states_->forget_finds();
    engine_ = std::make_unique<Engine>(*executor_, options_);
  }

  int64_t n_steps() const { return n_steps_before_ + engine_->counters().n_steps; }

  bool submit() {
    const bool goes_on = !turns_.empty() && scenario_.one_in(2);
    Client client = {
        .request = goes_on ? scenario_.request_after(some_turn()) : scenario_.request(),
        .kind = scenario_.client()};
    client.n_open = client.request.n_choices;
    client.answers.resize(static_cast<size_t>(client.request.n_choices));
    const Result<RequestId> id = engine_->submit(client.request);
    if (!id) {
      ++result_.n_refused;
      const int64_t retry_us = engine_->retry_us(client.request.tenant);
      if (retry_us < kRetryUsMin || retry_us > kRetryUsMax) fail("a retry time out of range", -1);
      return id.error().code == ErrorCode::kInvalid;
    }
    ++result_.n_requests;
    client.life = lives_.size();
    lives_.push_back(life_of(client.request));
    clients_.emplace(*id, std::move(client));
    return true;
  }

  // One of the last ones more often.
  const Turn& some_turn() {
    const auto n = static_cast<int64_t>(turns_.size());
    const int64_t back = scenario_.below(scenario_.one_in(2) ? std::min<int64_t>(n, 3) : n);
    return turns_[static_cast<size_t>(n - 1 - back)];
  }

  Life life_of(const Request& request) const {
    const auto n_prompt = static_cast<int64_t>(request.prompt.size());
    return {.tenant = static_cast<size_t>(request.tenant),
            .prompt = request.prompt,
            .answers = std::vector<std::vector<int32_t>>(static_cast<size_t>(request.n_choices)),
            .submit_us = steady_us_,
            .virtual_arrival_us = now_us_ - request.priority * options_.scheduler.aging_us,
            .first_step = n_steps(),
            .n_steps_alone = n_prompt / hash_.max_rows + 2 + restore_steps() +
                             request.n_choices * std::min(request.max_tokens, hash_.context)};
  }

  // That others may take while it waits for a tier; a tick takes 1 ms on average.
  int64_t restore_steps() const {
    const int64_t fetch_us = options_.states == nullptr ? 0 : options_.states_us_max;
    return options_.tiers.empty() ? 0 : (options_.restore_us_max + fetch_us) / 1000 + 1;
  }

  void cancel() {
    if (clients_.empty()) return;
    auto it = clients_.begin();
    std::advance(it, scenario_.below(static_cast<int64_t>(clients_.size())));
    let_go(it->first, it->second);
  }

  void let_go(RequestId id, Client& client) {
    client.cancelled = true;
    engine_->cancel(id);
  }

  // What a server does about clients that do not read.
  void odd_clients() {
    for (auto& [id, client] : clients_) {
      if (client.cancelled || client.kind == ClientKind::kReader) continue;
      if (client.kind == ClientKind::kVanished) {
        if (!scenario_.one_in(30)) continue;
        ++result_.n_vanished;
        let_go(id, client);
      } else if (client.n_unread > kUnreadMax) {
        ++result_.n_slow;
        let_go(id, client);
      } else if (client.n_unread > 0 && scenario_.one_in(4)) {
        --client.n_unread;
      }
    }
  }

  bool busy() const { return engine_->mailbox().n_outputs() > 0; }

  void read() {
    for (const Output& output :
         engine_->take_outputs(static_cast<size_t>(1 + scenario_.below(6)))) {
      take(output);
    }
  }

  void trace(uint64_t value) { result_.trace = (result_.trace ^ value) * 0x100000001B3U; }

  void take(const Output& output) {
    trace(static_cast<uint64_t>(result_.n_ticks));
    trace(static_cast<uint64_t>(output.request) * 64 + static_cast<uint64_t>(output.choice));
    for (const SampledToken& token : output.tokens) trace(static_cast<uint64_t>(token.id));
    const auto found = clients_.find(output.request);
    if (found == clients_.end()) return fail("an output for nobody", output.choice);
    Client& client = found->second;
    auto& answer = client.answers[static_cast<size_t>(output.choice)];
    for (const SampledToken& token : output.tokens) answer.push_back(token.id);
    client.n_unread += static_cast<int64_t>(output.tokens.size());
    lives_[client.life].answers[static_cast<size_t>(output.choice)] = answer;
    if (output.finish == EndReason::kNone) return;
    const bool poison = client.request.prompt.back() == kPoisonToken;
    if (!poison && client.request.prompt.size() + answer.size() < kConversationMax) {
      turns_.push_back({client.request, answer});
    }
    compare(client, output, answer);
    if (--client.n_open > 0) return;
    end_life(client, output.finish);
    clients_.erase(found);
  }

  void end_life(const Client& client, EndReason reason) {
    Life& life = lives_[client.life];
    life.end_step = n_steps();
    life.end_us = steady_us_;
    life.measured = client.kind == ClientKind::kReader && !client.cancelled &&
                    (reason == EndReason::kLength || reason == EndReason::kStop);
    const bool poison = client.request.prompt.back() == kPoisonToken;
    if (reason == EndReason::kError && !poison) ++result_.n_lost;
  }

  // Tokens that the prompt has in common with those that the other one was computed over.
  static int64_t common_tokens(const std::vector<int32_t>& prompt, const Life& other) {
    const auto [mine, its] = std::ranges::mismatch(prompt, other.prompt);
    if (its != other.prompt.end()) return mine - prompt.begin();
    int64_t longest = 0;
    for (const std::vector<int32_t>& answer : other.answers) {
      const auto [end, in_answer] = std::mismatch(mine, prompt.end(), answer.begin(), answer.end());
      longest = std::max<int64_t>(longest, end - prompt.begin());
    }
    return longest;
  }

  // Of its prompt, that some request of the tenant had before or has now; for hits that end inside
  // a block one that was live not too long ago.
  int64_t known_tokens(const Client& client, bool inside_block) const {
    int64_t longest = 0;
    const Life& own = lives_[client.life];
    for (size_t i = 0; i < lives_.size(); ++i) {
      const Life& other = lives_[i];
      if (i == client.life || other.tenant != own.tenant) continue;
      const bool over =
          other.end_us >= 0 && other.end_us + options_.sessions.ttl_us < own.submit_us;
      if (inside_block && over) continue;
      longest = std::max(longest, common_tokens(client.request.prompt, other));
    }
    return longest;
  }

  void compare(const Client& client, const Output& output, const std::vector<int32_t>& answer) {
    const Request& request = client.request;
    const Usage& usage = output.usage;
    const bool inside_block = usage.cached_tokens % kBlockTokens != 0;
    if (usage.cached_tokens > known_tokens(client, inside_block)) {
      fail("a hit nobody of the tenant made, or not lately", -1);
    }
    result_.n_cached_tokens += usage.cached_tokens;
    result_.n_replayed_tokens += usage.replayed_tokens;
    if (output.finish == EndReason::kCancelled && !client.cancelled) {
      fail("cancelled by nobody", output.choice);
    }
    if (output.finish == EndReason::kError) {
      ++result_.n_failed;
      const bool poison = request.prompt.back() == kPoisonToken;
      if (!poison && !scenario_.injects()) fail("lost: " + output.error, output.choice);
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
    EndReason reason = EndReason::kLength;
    const auto stop = std::ranges::find_if(want, [&](int32_t id) {
      return std::ranges::find(request.stop_ids, id) != request.stop_ids.end();
    });
    if (stop != want.end()) {
      want.erase(stop, want.end());
      reason = EndReason::kStop;
    }
    const bool whole = output.finish == EndReason::kStop || output.finish == EndReason::kLength;
    if (whole && output.finish != reason) fail("ended for another reason", output.choice);
    if (!whole && answer.size() <= want.size()) want.resize(answer.size());
    if (answer != want) fail("another answer than alone", output.choice);
    ++(whole ? result_.n_compared : result_.n_partial);
  }

  void bounds() {
    const Mailbox& mailbox = engine_->mailbox();
    if (mailbox.n_live() > options_.mailbox.max_live) fail("too many live", -1);
    if (mailbox.n_outputs() > options_.mailbox.max_outputs) fail("too many outputs", -1);
    if (engine_->load().session_bytes > options_.sessions.max_bytes) fail("too many states", -1);
  }

  void finish() {
    const EngineLoad load = engine_->load();
    if (!clients_.empty()) fail("a request without an end", -1);
    if (load.n_waiting + load.n_parked + load.n_running + load.n_live != 0) fail("tasks left", -1);
    if (load.n_slots != 0) fail("slots leaked", -1);
    if (load.n_pinned_blocks != 0) fail("blocks leaked", -1);
    if (engine_->mailbox().n_live() != 0) fail("live requests left", -1);
    // A failure costs the one request that it hit, at most.
    if (result_.n_lost > result_.n_injected) fail("more requests lost than failures", -1);
    waits();
  }

  // Nobody waits much longer than the work ahead of it in its tenant's order takes at the tenant's
  // share. Work of others that is done again after a failure is not in the estimate.
  void waits() {
    if (scenario_.repeats()) return;
    for (const Life& life : lives_) {
      if (!life.measured) continue;
      double n_steps = 0;
      for (const Life& other : lives_) {
        if (other.first_step > life.end_step || other.end_step < life.first_step) continue;
        if (other.tenant == life.tenant && other.virtual_arrival_us > life.virtual_arrival_us) {
          continue;
        }
        n_steps += static_cast<double>(other.n_steps_alone);
      }
      const double ratio = static_cast<double>(life.end_step - life.first_step) / n_steps;
      result_.longest_wait = std::max(result_.longest_wait, ratio);
    }
    if (result_.longest_wait > kWaitMax) fail("somebody starved", -1);
  }

  void fail(const std::string& what, int64_t choice) {
    if (!result_.failure.empty()) return;
    result_.failure = "seed " + std::to_string(seed_) + ", tick " +
                      std::to_string(result_.n_ticks) + ", choice " + std::to_string(choice) +
                      ": " + what;
  }

  uint64_t seed_;
  Scenario scenario_;
  const HashOptions hash_;
  EngineOptions options_;
  std::unique_ptr<FaultyTier> fast_;
  std::unique_ptr<FaultyTier> tier_;
  std::unique_ptr<FaultyStateTier> states_;
  std::unique_ptr<HashExecutor> executor_;
  std::unique_ptr<Engine> engine_;
  int64_t n_steps_before_ = 0;  // of the engines before this one
  std::map<RequestId, Client> clients_;
  std::vector<Life> lives_;
  std::vector<Turn> turns_;
  int64_t now_us_ = 1;
  int64_t steady_us_ = 1;
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
  n_lost += other.n_lost;
  n_injected += other.n_injected;
  n_slow += other.n_slow;
  n_vanished += other.n_vanished;
  longest_wait = std::max(longest_wait, other.longest_wait);
  trace = trace * 31 + other.trace;
  n_cached_tokens += other.n_cached_tokens;
  n_replayed_tokens += other.n_replayed_tokens;
  n_parked += other.n_parked;
  n_dropped += other.n_dropped;
  n_copied += other.n_copied;
  n_evicted += other.n_evicted;
  n_failed_copies += other.n_failed_copies;
  n_overtaken += other.n_overtaken;
  n_states_kept += other.n_states_kept;
  n_states_used += other.n_states_used;
  n_states_evicted += other.n_states_evicted;
  n_states_expired += other.n_states_expired;
  n_restarts += other.n_restarts;
  n_restores += other.n_restores;
  n_cut_restores += other.n_cut_restores;
  n_late_restores += other.n_late_restores;
  n_restored_tokens += other.n_restored_tokens;
  n_fetches += other.n_fetches;
  n_fetched_states += other.n_fetched_states;
  n_unfit_states += other.n_unfit_states;
  n_late_fetches += other.n_late_fetches;
  n_bad += other.n_bad;
}

SimulationResult simulate(uint64_t seed) { return Simulation(seed).run(); }

}  // namespace fathom
