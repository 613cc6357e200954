#pragma once

// Requests of coding agents over time, as lists of the blocks that they begin with: read from a
// file, or generated. The generated ones are no recording: what is published of such traces is the
// frame (an hour of sessions of coding agents with sub-agents, tool and think times), the rest are
// assumptions, each of which has a name below.

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace fathom {

// Names a block by everything before it.
using TraceBlock = uint64_t;

struct TraceRequest {
  double at_s = 0;
  std::vector<TraceBlock> prompt;  // full blocks
  std::vector<TraceBlock> answer;  // full blocks behind them, when it has ended
};

struct AgentTraceOptions {
  uint64_t seed = 1;
  double seconds = 3600;
  double sessions_per_hour = 500;
  // What requests begin with: one text for all sessions (system prompt and tools), and one of its
  // own for each kind of sub-agent; then the text of a project, which few have in common.
  int64_t system_tokens = 12'000;
  int64_t agent_kinds = 4;
  int64_t agent_tokens = 3000;
  int64_t projects = 120;  // chosen with odds 1, 1/2, 1/3 ...
  int64_t project_tokens = 2500;
  // Turns: how many, and what each adds (tool results, files: log-normal by median and sigma).
  double turns_mean = 25;
  double added_median = 700;
  double added_sigma = 1.2;
  double answer_median = 150;
  double answer_sigma = 0.9;
  // Between an answer and the next turn: a tool's time, or once in a while a person's.
  double tool_s_median = 4;
  double tool_sigma = 1.2;
  double think_share = 0.12;
  double think_s_median = 60;
  double think_sigma = 1.5;
  // Turns that start a sub-agent, whose turns run before the session's next one.
  double agent_share = 0.06;
  double agent_turns_mean = 8;
  int64_t context_tokens = 160'000;  // then the session goes on behind a summary
  int64_t summary_tokens = 4000;
};

// In the order of time.
std::vector<TraceRequest> generate_agent_trace(const AgentTraceOptions& options);

// A file of JSON lines with `timestamp` (ms) and `hash_ids`, each of which stands for `split`
// blocks: 8 for the 512 tokens of Mooncake's traces, 1 for 64.
Result<std::vector<TraceRequest>> read_trace(const std::string& path, int64_t split);

}  // namespace fathom
