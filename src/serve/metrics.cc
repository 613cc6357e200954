#include "serve/metrics.h"

#include <algorithm>

#include "serve/process_figures.h"

namespace fathom {
namespace {

// Bounds in seconds, those of vLLM (finer at the low end of tokens), so that quantiles compare.
const std::vector<double> kFirstTokenS = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,
                                          0.25,  0.5,   0.75, 1,    2.5,  5,    7.5,  10,
                                          20,    40,    80,   160,  640,  2560};
const std::vector<double> kTokenS = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1,
                                     0.15,  0.2,    0.3,   0.4,  0.5,   0.75, 1,     2.5,
                                     5,     7.5,    10,    20,   40,    80};
const std::vector<double> kWholeS = {0.3, 0.5, 0.8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                     30,  40,  50,  60, 120, 240, 480, 960, 1920, 7680};

const std::vector<double> kTokens = {1,     2,   5,      10,     20,   50,     100,
                                     200,   500, 1000,   2000,   5000, 10'000, 20'000,
                                     50000, 1e5, 200000, 500000, 1e6};
const std::vector<double> kChoices = {1, 2, 5, 10, 20};

struct Named {
  const char* label;
  int64_t value;
};

// By the names of Prometheus' own clients.
void write_process(PrometheusText& out) {
  const ProcessFigures now = process_figures();
  const auto gauge = [&](const char* name, const char* help, double value) {
    if (value >= 0) out.gauge(name, help, value);
  };
  gauge("process_start_time_seconds", "When the process began, since 1970.", now.start_s);
  gauge("process_resident_memory_bytes", "Memory that it has.",
        static_cast<double>(now.resident_bytes));
  gauge("process_virtual_memory_bytes", "Addresses that it has.",
        static_cast<double>(now.virtual_bytes));
  gauge("process_open_fds", "Files that it has open.", static_cast<double>(now.open_files));
  gauge("process_max_fds", "Files that it may have open.", static_cast<double>(now.open_files_max));
  out.family("process_cpu_seconds_total", "counter", "Time of processors that it took.");
  out.sample(now.cpu_s);
}

void labelled(PrometheusText& out, const char* label, const std::vector<Named>& samples) {
  for (const Named& named : samples) out.sample(named.value, {{label, named.label}});
}

}  // namespace

double CallRecord::seconds_per_token() const {
  return answered_tokens > 1 ? (last_s - first_s) / static_cast<double>(answered_tokens - 1) : 0;
}

ServerMetrics::ServerMetrics()
    : first_token_s_(kFirstTokenS),
      between_tokens_s_(kTokenS),
      per_token_s_(kTokenS),
      whole_s_(kWholeS),
      queued_s_(kWholeS),
      prefill_s_(kWholeS),
      decode_s_(kWholeS),
      inference_s_(kWholeS),
      prompt_tokens_(kTokens),
      answered_tokens_(kTokens),
      max_tokens_(kTokens),
      n_choices_(kChoices) {
  for (const char* reason : {"stop", "length", "abort", "error"}) ended_[reason] = 0;
  for (const char* reason : {"key", "queue", "drain", "bodies", "connections",
                             "requests_per_minute", "tokens_per_minute", "concurrent_requests"}) {
    refused_[reason] = 0;
  }
}

void ServerMetrics::responded(const std::string& route, int status) {
  ++responses_[{route.empty() ? "other" : route, status}];
}

void ServerMetrics::arrived(CallRecord& call, const Output& output, double now_s) {
  const auto n = static_cast<int64_t>(output.tokens.size());
  call.answered_tokens += n;
  if (output.finish != EndReason::kNone) {
    call.end = output.finish;
    call.usage = output.usage;
  }
  if (n == 0) return;
  if (call.first_s == 0) {
    call.first_s = now_s;
    call.queued_s = 1e-6 * static_cast<double>(output.usage.queued_us);
    first_token_s_.observe(now_s - call.begun_s);
    if (n > 1) between_tokens_s_.observe(0, n - 1);
  } else {
    between_tokens_s_.observe((now_s - call.last_s) / static_cast<double>(n), n);
  }
  call.last_s = now_s;
}

void ServerMetrics::ended(const CallRecord& call, const std::string& reason, double now_s) {
  ++ended_[reason];
  whole_s_.observe(now_s - call.begun_s);
  if (call.answered_tokens > 1) per_token_s_.observe(call.seconds_per_token());
  prompt_tokens_.observe(static_cast<double>(call.prompt_tokens));
  answered_tokens_.observe(static_cast<double>(call.answered_tokens));
  max_tokens_.observe(static_cast<double>(call.max_tokens));
  n_choices_.observe(static_cast<double>(call.n_choices));
  if (call.first_s == 0) return;
  // The engine's time and the server's differ by what is on its way between them.
  const double started_s = std::min(call.begun_s + call.queued_s, call.first_s);
  queued_s_.observe(started_s - call.begun_s);
  prefill_s_.observe(call.first_s - started_s);
  decode_s_.observe(call.last_s - call.first_s);
  inference_s_.observe(call.last_s - started_s);
}

std::string ServerMetrics::text(const EngineStatus& engine, const std::string& model_name,
                                const PrometheusText::Labels& build) const {
  PrometheusText out(PrometheusText::Labels{{"model_name", model_name}});
  write_engine(out, engine);
  if (!engine.tiers.empty()) write_tiers(out, engine);
  if (engine.states) write_states(out, engine);
  write_times(out);
  write_sizes(out);
  write_server(out);
  out.family("fathom_build_info", "gauge", "What the program is, in labels.");
  out.sample(int64_t{1}, build);
  write_process(out);
  return out.text();
}

void ServerMetrics::write_engine(PrometheusText& out, const EngineStatus& engine) const {
  const EngineCounters& n = engine.counters;
  const EngineLoad& load = engine.load;
  const auto blocks = static_cast<double>(std::max<int64_t>(1, engine.n_blocks));
  out.gauge("vllm:num_requests_running", "Choices that hold a slot.",
            static_cast<double>(load.n_running));
  out.gauge("vllm:num_requests_waiting",
            "Choices that wait for one, or for blocks from a tier; parked ones among them.",
            static_cast<double>(load.n_waiting + load.n_parked + load.n_restoring));
  out.gauge("vllm:kv_cache_usage_perc", "Pinned blocks over all, 0 to 1.",
            static_cast<double>(load.n_pinned_blocks) / blocks);
  out.counter("vllm:prompt_tokens_total", "Tokens of prompts that were started.", n.prompt_tokens);
  out.counter("vllm:generation_tokens_total", "Tokens answered.", n.answered_tokens);
  out.counter("vllm:prefix_cache_queries_total", "Tokens looked up in the prefix cache.",
              n.prompt_tokens);
  out.counter("vllm:prefix_cache_hits_total", "Tokens found there.", n.cached_tokens);
  out.counter("vllm:num_preemptions_total", "Choices that lost their slot for another.",
              n.n_parked + n.n_dropped);
  out.counter("fathom_replayed_tokens_total", "Rows computed again to rebuild windows.",
              n.replayed_tokens);
  out.counter("fathom_computed_tokens_total", "Rows that wrote entries.", n.computed_tokens);
  out.family("fathom_requests_by_hit_total", "counter",
             "Requests by what they started from: nothing, the kept state of an earlier turn, or a "
             "cached prefix whose windows were rebuilt exactly or by a bounded replay.");
  labelled(out, "hit",
           {{"none", n.n_no_hit},
            {"session", n.n_session_hits},
            {"exact", n.n_exact_hits},
            {"bounded", n.n_bounded_hits}});
  out.family("fathom_blocks", "gauge", "Blocks of 64 tokens by state.");
  labelled(out, "state",
           {{"pinned", load.n_pinned_blocks},
            {"cached", engine.n_idle_blocks},
            {"free", engine.n_blocks - load.n_pinned_blocks - engine.n_idle_blocks}});
  out.counter("fathom_evicted_blocks_total", "Cached blocks that made room for others.",
              engine.prefix.evicted);
  out.counter("fathom_cleared_blocks_total", "Cached blocks that an administrator dropped.",
              engine.prefix.cleared);
  out.gauge("fathom_slots_used", "Sequences that hold windows.", static_cast<double>(load.n_slots));
  out.gauge("fathom_sessions", "Kept states of earlier turns.",
            static_cast<double>(load.n_sessions));
  out.gauge("fathom_session_bytes", "Bytes of these.", static_cast<double>(load.session_bytes));
  out.counter("fathom_steps_total", "Steps of the engine.", n.n_steps);
  out.counter("fathom_step_rows_total", "Rows of these steps.", n.n_rows);
  out.counter("fathom_failed_steps_total", "Steps that failed.", n.n_failed_steps);
}

// Blocks behind the pool. Nothing where there is no tier.
void ServerMetrics::write_tiers(PrometheusText& out, const EngineStatus& engine) const {
  const auto each = [&](const char* label, const auto& samples) {
    for (const TierReport& tier : engine.tiers) {
      for (const Named& named : samples(tier.counters)) {
        out.sample(named.value, {{"tier", tier.name}, {label, named.label}});
      }
    }
  };
  using Samples = std::vector<Named>;
  out.family("fathom_tier_blocks", "gauge", "Blocks that a tier has.");
  for (const TierReport& t : engine.tiers) out.sample(t.counters.n_blocks, {{"tier", t.name}});
  out.family("fathom_tier_bytes", "gauge", "Bytes that they take, their payload, and the bound.");
  each("kind", [](const TierCounters& n) {
    return Samples{{"held", n.held_bytes}, {"payload", n.payload_bytes}, {"max", n.max_bytes}};
  });
  out.family("fathom_tier_age_bytes", "gauge", "Bytes of payload by age, up to so many hours.");
  each("hours", [](const TierCounters& n) {
    const auto& of = n.bytes_by_age;
    return Samples{{"1", of[0]}, {"6", of[1]}, {"24", of[2]}, {"72", of[3]}, {"+Inf", of[4]}};
  });
  out.family("fathom_tier_reads_total", "counter", "Blocks read, by how that went.");
  each("result", [](const TierCounters& n) {
    return Samples{{"hit", n.hits}, {"missing", n.misses}, {"bad", n.bad}};
  });
  out.family("fathom_tier_puts_total", "counter", "Blocks offered, by what became of them.");
  each("result", [](const TierCounters& n) {
    return Samples{{"kept", n.kept},
                   {"known", n.found_again},
                   {"full", n.dropped_full},
                   {"failed", n.dropped_failed}};
  });
  out.family("fathom_tier_evicted_blocks_total", "counter", "Blocks that went, by reason.");
  each("reason", [](const TierCounters& n) {
    return Samples{{"size", n.evicted_size}, {"age", n.evicted_age}, {"forgotten", n.forgotten}};
  });
  out.family("fathom_tier_written_bytes_total", "counter",
             "Bytes put and kept, and bytes written for whatever reason.");
  each("kind", [](const TierCounters& n) {
    return Samples{{"payload", n.put_payload_bytes}, {"device", n.written_bytes}};
  });
  const EngineCounters& n = engine.counters;
  out.gauge("fathom_requests_restoring", "Choices that wait for blocks from a tier.",
            static_cast<double>(engine.load.n_restoring));
  out.counter("fathom_restores_total", "Waits for blocks from a tier.", n.n_restores);
  out.family("fathom_cut_restores_total", "counter", "Of those, with fewer blocks than promised.");
  labelled(out, "reason",
           {{"late", n.n_late_restores}, {"lost", n.n_cut_restores - n.n_late_restores}});
  out.counter("fathom_restored_tokens_total", "Tokens whose blocks came.", n.restored_tokens);
  out.family("fathom_restore_seconds_total", "counter", "Time of these waits.");
  out.sample(static_cast<double>(n.restore_us) * 1e-6);
}

// States shared with other processes.
void ServerMetrics::write_states(PrometheusText& out, const EngineStatus& engine) const {
  const StateCounters& of = *engine.states;
  out.family("fathom_shared_states_finds_total", "counter",
             "States of sessions looked for, by how that went: there and verified, not there, "
             "there and damaged, no answer, or no attempt for a while after failures.");
  labelled(out, "result",
           {{"hit", of.hits},
            {"missing", of.missing},
            {"bad", of.bad},
            {"failed", of.failed},
            {"paused", of.paused}});
  out.family("fathom_shared_states_puts_total", "counter",
             "States offered, by what became of them.");
  labelled(out, "result",
           {{"kept", of.kept},
            {"full", of.dropped_full},
            {"failed", of.dropped_failed},
            {"paused", of.dropped_paused}});
  out.family("fathom_shared_states_bytes_total", "counter", "Bytes of states that went and came.");
  labelled(out, "kind", {{"put", of.put_bytes}, {"hit", of.hit_bytes}});
  out.family("fathom_shared_states_failures_total", "counter",
             "Failed exchanges with the server: no whole answer in time, no connection, or an "
             "answer that is none.");
  labelled(out, "reason",
           {{"timeout", of.timeouts}, {"connection", of.refusals}, {"protocol", of.protocol}});
  out.counter("fathom_shared_states_connects_total", "Connections that were tried.", of.connects);
  const EngineCounters& n = engine.counters;
  out.counter("fathom_fetches_total", "Waits for such a state.", n.n_fetches);
  out.counter("fathom_fetched_states_total", "Of these, with a state.", n.n_fetched_states);
  out.counter("fathom_late_fetches_total", "Of these, longer than the bound: done without.",
              n.n_late_fetches);
  out.counter("fathom_unfit_states_total", "States of another shape than this process's.",
              n.n_unfit_states);
  out.family("fathom_fetch_seconds_total", "counter", "Time of these waits.");
  out.sample(static_cast<double>(n.fetch_us) * 1e-6);
}

void ServerMetrics::write_times(PrometheusText& out) const {
  out.histogram("vllm:time_to_first_token_seconds", "From the whole request to its first token.",
                first_token_s_);
  out.histogram("vllm:inter_token_latency_seconds", "Between tokens as they came.",
                between_tokens_s_);
  out.histogram("vllm:time_per_output_token_seconds", "The same by its older name.",
                between_tokens_s_);
  out.histogram("vllm:request_time_per_output_token_seconds",
                "Of each call, from its first token to its last, over the tokens after the first.",
                per_token_s_);
  out.histogram("vllm:e2e_request_latency_seconds", "From the whole request to its end.", whole_s_);
  out.histogram("vllm:request_queue_time_seconds",
                "From the whole request to its first slot; these four of calls with a token.",
                queued_s_);
  out.histogram("vllm:request_prefill_time_seconds", "From there to its first token.", prefill_s_);
  out.histogram("vllm:request_decode_time_seconds", "From there to its last token.", decode_s_);
  out.histogram("vllm:request_inference_time_seconds", "From its first slot to its last token.",
                inference_s_);
}

void ServerMetrics::write_sizes(PrometheusText& out) const {
  out.histogram("vllm:request_prompt_tokens", "Tokens of each call's prompt.", prompt_tokens_);
  out.histogram("vllm:request_generation_tokens", "Tokens of its answers.", answered_tokens_);
  out.histogram("vllm:request_params_max_tokens", "Tokens that each of its answers may have.",
                max_tokens_);
  out.histogram("vllm:request_params_n", "Its choices.", n_choices_);
}

void ServerMetrics::write_server(PrometheusText& out) const {
  out.family("vllm:request_success_total", "counter",
             "Calls that were taken in and ended, by reason (abort: their client went away).");
  for (const auto& [reason, n] : ended_) out.sample(n, {{"finished_reason", reason}});
  out.family("fathom_http_responses_total", "counter",
             "Answers by route and status (499: the client went away).");
  for (const auto& [key, n] : responses_) {
    out.sample(n, {{"route", key.first}, {"status", std::to_string(key.second)}});
  }
  out.family("fathom_refused_requests_total", "counter",
             "Requests turned away for want of a key or of room, by reason.");
  for (const auto& [reason, n] : refused_) out.sample(n, {{"reason", reason}});
}

}  // namespace fathom
