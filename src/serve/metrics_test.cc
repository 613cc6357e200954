// Goal: /metrics is text that Prometheus reads, and says what was done. Method: a strict reader;
// figures that were put in by hand.
#include "serve/metrics.h"

#include <gtest/gtest.h>

#include "serve/prometheus_testing.h"

namespace fathom {
namespace {

Output tokens(size_t n, EndReason end = EndReason::kNone) {
  Output output = {.finish = end};
  output.tokens.resize(n);
  return output;
}

TEST(Prometheus, LabelsAreEscapedAndNumbersExact) {
  PrometheusText out(PrometheusText::Labels{{"model_name", "a\"b\\c\nd"}});
  out.counter("fathom_x_total", "Help.", 9'007'199'254'740'993);
  out.gauge("fathom_y", "Help.", 0.1);
  EXPECT_EQ(out.text(),
            "# HELP fathom_x_total Help.\n# TYPE fathom_x_total counter\n"
            "fathom_x_total{model_name=\"a\\\"b\\\\c\\nd\"} 9007199254740993\n"
            "# HELP fathom_y Help.\n# TYPE fathom_y gauge\n"
            "fathom_y{model_name=\"a\\\"b\\\\c\\nd\"} 0.1\n");
  const PrometheusReader read(out.text());
  EXPECT_EQ(read.value("fathom_y"), 0.1);
}

TEST(Prometheus, AHistogramCountsUpToAndWithItsBounds) {
  Histogram values({1, 2.5});
  for (const double value : {0.5, 1.0, 2.0, 2.5, 3.0}) values.observe(value);
  values.observe(7, 2);
  PrometheusText out(PrometheusText::Labels{});
  out.histogram("h", "Help.", values);
  EXPECT_EQ(out.text(),
            "# HELP h Help.\n# TYPE h histogram\nh_bucket{le=\"1\"} 2\nh_bucket{le=\"2.5\"} 4\n"
            "h_bucket{le=\"+Inf\"} 7\nh_sum 23\nh_count 7\n");
}

TEST(ServerMetrics, TellsWhatWasDone) {
  ServerMetrics metrics;
  metrics.responded("/v1/chat/completions", 200);
  metrics.responded("/v1/chat/completions", 200);
  for (int i = 0; i < 50; ++i) metrics.responded("", 404);
  metrics.responded("", 431);
  metrics.refused("queue");
  CallRecord call = {.begun_s = 10, .prompt_tokens = 90, .max_tokens = 64, .n_choices = 2};
  Output first = tokens(1);
  first.usage.queued_us = 125'000;
  metrics.arrived(call, first, 10.5);
  metrics.arrived(call, tokens(2), 10.7);
  metrics.arrived(call, tokens(0, EndReason::kStop), 10.8);
  metrics.ended(call, "stop", 11);
  EXPECT_EQ(call.answered_tokens, 3);
  EXPECT_EQ(call.end, EndReason::kStop);
  EXPECT_DOUBLE_EQ(call.seconds_per_token(), (10.7 - 10.5) / 2);

  EngineStatus engine = {.n_blocks = 10, .n_idle_blocks = 3};
  engine.load = {.n_waiting = 1,
                 .n_parked = 2,
                 .n_running = 4,
                 .n_pinned_blocks = 5,
                 .n_sessions = 2,
                 .session_bytes = 96};
  engine.counters.prompt_tokens = 100;
  engine.counters.cached_tokens = 64;
  engine.counters.replayed_tokens = 7;
  engine.counters.answered_tokens = 12;
  engine.counters.n_bounded_hits = 1;
  const PrometheusReader read(metrics.text(engine, "m"));
  EXPECT_EQ(read.value("vllm:num_requests_running"), 4);
  EXPECT_EQ(read.value("vllm:num_requests_waiting"), 3);
  EXPECT_EQ(read.value("vllm:kv_cache_usage_perc", "model_name=\"m\""), 0.5);
  EXPECT_EQ(read.value("vllm:prompt_tokens_total"), 100);
  EXPECT_EQ(read.value("vllm:prefix_cache_queries_total"), 100);
  EXPECT_EQ(read.value("vllm:prefix_cache_hits_total"), 64);
  EXPECT_EQ(read.value("vllm:generation_tokens_total"), 12);
  EXPECT_EQ(read.value("fathom_replayed_tokens_total"), 7);
  EXPECT_EQ(read.value("fathom_requests_by_hit_total", "hit=\"bounded\""), 1);
  EXPECT_EQ(read.value("fathom_blocks", "state=\"free\""), 2);
  EXPECT_EQ(read.value("fathom_sessions"), 2);
  EXPECT_EQ(read.value("fathom_session_bytes"), 96);
  EXPECT_EQ(read.value("vllm:time_to_first_token_seconds_bucket", "le=\"0.5\""), 1);
  EXPECT_EQ(read.value("vllm:time_to_first_token_seconds_bucket", "le=\"0.25\""), 0);
  EXPECT_EQ(read.value("vllm:inter_token_latency_seconds_count"), 2);
  EXPECT_EQ(read.value("vllm:time_per_output_token_seconds_count"), 2);
  EXPECT_EQ(read.value("vllm:request_time_per_output_token_seconds_count"), 1);
  EXPECT_EQ(read.value("vllm:e2e_request_latency_seconds_sum"), 1);
  EXPECT_EQ(read.value("vllm:request_queue_time_seconds_sum"), 0.125);
  EXPECT_EQ(read.value("vllm:request_prefill_time_seconds_sum"), 0.375);
  EXPECT_NEAR(read.value("vllm:request_decode_time_seconds_sum"), 0.2, 1e-9);
  EXPECT_NEAR(read.value("vllm:request_inference_time_seconds_sum"), 0.575, 1e-9);
  EXPECT_EQ(read.value("vllm:request_prompt_tokens_bucket", "le=\"100\""), 1);
  EXPECT_EQ(read.value("vllm:request_prompt_tokens_bucket", "le=\"50\""), 0);
  EXPECT_EQ(read.value("vllm:request_generation_tokens_sum"), 3);
  EXPECT_EQ(read.value("vllm:request_params_max_tokens_sum"), 64);
  EXPECT_EQ(read.value("vllm:request_params_n_sum"), 2);
  EXPECT_EQ(read.value("vllm:request_success_total", "finished_reason=\"stop\""), 1);
  EXPECT_EQ(read.value("vllm:request_success_total", "finished_reason=\"abort\""), 0);
  EXPECT_EQ(
      read.value("fathom_http_responses_total", "route=\"/v1/chat/completions\",status=\"200\""),
      2);
  EXPECT_EQ(read.value("fathom_http_responses_total", "route=\"other\",status=\"404\""), 50);
  EXPECT_EQ(read.value("fathom_http_responses_total", "status=\"431\""), 1);
  EXPECT_EQ(read.value("fathom_refused_requests_total", "reason=\"queue\""), 1);
}

// Times are of calls that were given a token, sizes of all.
TEST(ServerMetrics, ACallWithoutATokenHasNoTimes) {
  ServerMetrics metrics;
  metrics.ended({.begun_s = 1, .prompt_tokens = 5}, "abort", 2);
  const PrometheusReader read(metrics.text({}, "m"));
  EXPECT_EQ(read.value("vllm:request_queue_time_seconds_count"), 0);
  EXPECT_EQ(read.value("vllm:request_decode_time_seconds_count"), 0);
  EXPECT_EQ(read.value("vllm:request_prompt_tokens_count"), 1);
}

TEST(ServerMetrics, TellsOfTheProgramAndItsProcess) {
  const PrometheusReader read(ServerMetrics().text({}, "m", {{"version", "1"}, {"commit", "c"}}));
  EXPECT_EQ(read.value("fathom_build_info", "version=\"1\",commit=\"c\""), 1);
  EXPECT_GT(read.value("process_start_time_seconds"), 1'700'000'000);
  EXPECT_GT(read.value("process_resident_memory_bytes"), 1 << 20);
  EXPECT_GE(read.value("process_open_fds"), 3);
  EXPECT_GE(read.value("process_max_fds"), read.value("process_open_fds"));
  EXPECT_GE(read.value("process_cpu_seconds_total"), 0);
}

TEST(ServerMetrics, TellsOfEachTier) {
  EngineStatus engine;
  EXPECT_EQ(ServerMetrics().text(engine, "m").find("fathom_tier"), std::string::npos);
  engine.tiers.resize(2);
  engine.tiers[0].name = "host";
  engine.tiers[0].counters = {.n_blocks = 3, .held_bytes = 300, .hits = 5, .bad = 1};
  engine.tiers[1].name = "disk";
  engine.tiers[1].counters = {.max_bytes = 900,
                              .kept = 8,
                              .misses = 2,
                              .evicted_size = 6,
                              .evicted_age = 7,
                              .put_payload_bytes = 100,
                              .written_bytes = 104};
  engine.tiers[1].counters.bytes_by_age[4] = 11;
  engine.load.n_restoring = 2;
  engine.counters.n_restores = 9;
  engine.counters.n_cut_restores = 4;
  engine.counters.n_late_restores = 1;
  engine.counters.restore_us = 1'500'000;
  const PrometheusReader read(ServerMetrics().text(engine, "m"));
  EXPECT_EQ(read.value("fathom_tier_blocks", "tier=\"host\""), 3);
  EXPECT_EQ(read.value("fathom_tier_bytes", "tier=\"host\",kind=\"held\""), 300);
  EXPECT_EQ(read.value("fathom_tier_bytes", "tier=\"disk\",kind=\"max\""), 900);
  EXPECT_EQ(read.value("fathom_tier_age_bytes", "tier=\"disk\",hours=\"+Inf\""), 11);
  EXPECT_EQ(read.value("fathom_tier_reads_total", "tier=\"host\",result=\"hit\""), 5);
  EXPECT_EQ(read.value("fathom_tier_reads_total", "tier=\"host\",result=\"bad\""), 1);
  EXPECT_EQ(read.value("fathom_tier_reads_total", "tier=\"disk\",result=\"missing\""), 2);
  EXPECT_EQ(read.value("fathom_tier_puts_total", "tier=\"disk\",result=\"kept\""), 8);
  EXPECT_EQ(read.value("fathom_tier_evicted_blocks_total", "tier=\"disk\",reason=\"age\""), 7);
  EXPECT_EQ(read.value("fathom_tier_written_bytes_total", "tier=\"disk\",kind=\"device\""), 104);
  EXPECT_EQ(read.value("fathom_requests_restoring"), 2);
  EXPECT_EQ(read.value("vllm:num_requests_waiting"), 2);
  EXPECT_EQ(read.value("fathom_cut_restores_total", "reason=\"lost\""), 3);
  EXPECT_EQ(read.value("fathom_restore_seconds_total"), 1.5);
}

TEST(ServerMetrics, TellsOfSharedStates) {
  EngineStatus engine;
  EXPECT_EQ(ServerMetrics().text(engine, "m").find("fathom_shared_states"), std::string::npos);
  engine.states = StateCounters{.kept = 8,
                                .dropped_full = 1,
                                .hits = 5,
                                .missing = 2,
                                .bad = 3,
                                .timeouts = 4,
                                .put_bytes = 800,
                                .hit_bytes = 500};
  engine.counters.n_fetches = 9;
  engine.counters.n_late_fetches = 2;
  engine.counters.fetch_us = 250'000;
  const PrometheusReader read(ServerMetrics().text(engine, "m"));
  EXPECT_EQ(read.value("fathom_shared_states_finds_total", "result=\"hit\""), 5);
  EXPECT_EQ(read.value("fathom_shared_states_finds_total", "result=\"bad\""), 3);
  EXPECT_EQ(read.value("fathom_shared_states_puts_total", "result=\"kept\""), 8);
  EXPECT_EQ(read.value("fathom_shared_states_puts_total", "result=\"full\""), 1);
  EXPECT_EQ(read.value("fathom_shared_states_bytes_total", "kind=\"hit\""), 500);
  EXPECT_EQ(read.value("fathom_shared_states_failures_total", "reason=\"timeout\""), 4);
  EXPECT_EQ(read.value("fathom_late_fetches_total"), 2);
  EXPECT_EQ(read.value("fathom_fetch_seconds_total"), 0.25);
}

}  // namespace
}  // namespace fathom
