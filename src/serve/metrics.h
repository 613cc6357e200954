#pragma once

// ServerMetrics: what /metrics tells. Names that dashboards of vLLM know where the thing is the
// same (docs/design/operate.md), `fathom_` before the others. Figures of the engine come as its
// status, times are measured where its outputs arrive. Thread rule: one thread.

#include <map>
#include <string>

#include "engine/status.h"
#include "serve/prometheus.h"

namespace fathom {

// One call of a model, as metrics and the log see it. Times are seconds of a steady clock.
struct CallRecord {
  double begun_s = 0;  // its request had come whole
  double first_s = 0;  // first and last tokens; 0: none yet
  double last_s = 0;
  double queued_s = 0;  // until the first slot; of calls with a token
  int64_t prompt_tokens = 0;
  int64_t max_tokens = 0;  // that each choice may have
  int64_t n_choices = 1;
  int64_t answered_tokens = 0;
  EndReason end = EndReason::kNone;
  Usage usage;  // where `end` is not kNone

  // The tokens a second look at which they came: span over tokens (lessons.md L87).
  double seconds_per_token() const;
};

class ServerMetrics {
 public:
  ServerMetrics();

  // Each answered request. `route` is one of the server's, or empty: a path that is none is the
  // caller's choice, and would make a series of its own each time.
  void responded(const std::string& route, int status);
  // A call that was not taken in: "key", "queue", "drain", "bodies", "connections" or the
  // limit's name.
  void refused(const std::string& reason) { ++refused_[reason]; }
  // An output arrived for the call, which takes it up.
  void arrived(CallRecord& call, const Output& output, double now_s);
  // The call is over; `reason` as in OpenAI's answers, "abort" or "error".
  void ended(const CallRecord& call, const std::string& reason, double now_s);

  const std::map<std::string, int64_t>& refusals() const { return refused_; }  // by reason
  const std::map<std::string, int64_t>& ends() const { return ended_; }        // by reason
  const Histogram& first_token_s() const { return first_token_s_; }

  // The text of /metrics. `build`: names and values of what the program is.
  std::string text(const EngineStatus& engine, const std::string& model_name,
                   const PrometheusText::Labels& build = {}) const;

 private:
  void write_engine(PrometheusText& out, const EngineStatus& engine) const;
  void write_tiers(PrometheusText& out, const EngineStatus& engine) const;
  void write_times(PrometheusText& out) const;
  void write_sizes(PrometheusText& out) const;
  void write_states(PrometheusText& out, const EngineStatus& engine) const;
  void write_server(PrometheusText& out) const;

  std::map<std::pair<std::string, int>, int64_t> responses_;
  std::map<std::string, int64_t> refused_;
  std::map<std::string, int64_t> ended_;
  Histogram first_token_s_;
  Histogram between_tokens_s_;
  Histogram per_token_s_;
  Histogram whole_s_;
  Histogram queued_s_;
  Histogram prefill_s_;
  Histogram decode_s_;
  Histogram inference_s_;
  Histogram prompt_tokens_;
  Histogram answered_tokens_;
  Histogram max_tokens_;
  Histogram n_choices_;
};

}  // namespace fathom
