#pragma once

// EngineTask: one choice of a request on its way, and the request that its choices share. Private
// to the engine.

#include <string>
#include <vector>

#include "cache/prefix_cache.h"
#include "cache/prefix_tiers.h"
#include "cache/session_cache.h"
#include "engine/executor.h"
#include "engine/grammar_store.h"
#include "engine/request.h"
#include "engine/scheduler.h"

namespace fathom {

// Blocks on their way from a tier into the own ones of a lease; or of another task's, that this one
// waits for.
struct TaskRestore {
  RestoreId id = {};
  bool follows = false;  // `id` is another task's
  int64_t n_asked = 0;
  int64_t n_copied = 0;     // blocks at this index and behind may not have got into the pool
  int64_t deadline_us = 0;  // what has not come is computed
};

// A state on its way from another process.
struct TaskFetch {
  TierTicket ticket = {};
  int64_t deadline_us = 0;
};

struct LiveRequest {
  RequestId id = {};
  Request request;
  std::vector<uint8_t> image;              // a flag for each prompt token; empty: no images
  std::vector<SamplingOptions> draws;      // of each choice
  GrammarStore::Entry* grammar = nullptr;  // of the request, until it has ended; null: none
  BlockKey root;
  int64_t arrival_us = 0;
  int64_t n_unfinished = 0;  // choices whose last output was not put yet

  int64_t prompt_tokens() const { return static_cast<int64_t>(request.prompt.size()); }
};

// Invariants: waiting: no lease, no slot. Restoring: a lease whose own blocks are being filled, or
// a state on its way, or both; and a slot that nobody else is given. Parked: a lease, `windows`
// full. Running: a lease and a slot. The sequence's tokens are the prompt and the first n_fed
// tokens of the answer.
struct EngineTask {
  EngineTask(TaskId task_id, LiveRequest& of, int64_t choice_number)
      : id(task_id), live(&of), choice(choice_number), keys(of.root) {}

  TaskId id = {};
  LiveRequest* live = nullptr;
  int64_t choice = 0;
  int64_t n_forks = 0;  // choices (the next ones) that begin as copies of this one
  TaskPhase phase = TaskPhase::kWaiting;
  int64_t since_us = 0;
  int64_t last_step = 0;
  bool suspect = false;

  GrammarCursor form;  // behind the last token of the answer
  std::vector<SampledToken> answer;
  size_t n_fed = 0;
  std::vector<SampledToken> unsent;
  std::vector<PromptLogprob> prompt;  // of the tokens that were computed, where they are asked for
  bool told_prompt = false;

  KeyChain keys;
  BlockLease lease;
  Sequence sequence;
  std::vector<std::byte> windows;
  std::optional<SessionName> session;  // of the kept state that it started from
  bool exact = true;
  std::optional<TaskRestore> restore;
  std::optional<TaskFetch> fetch;
  bool asks_tiers = true;    // false once they did not bring in time what they promised
  bool asks_states = true;   // false once it has asked
  bool started = false;      // was admitted before
  bool counted = false;      // in the counters of starts
  int64_t n_given_back = 0;  // positions with entries, to start over where they are cached
  Usage usage;

  // What was found for a waiting task, and in which epoch of the cache.
  int64_t peek_epoch = -1;
  PrefixCache::Hit peeked;

  bool fed() const { return n_fed == answer.size(); }
};

}  // namespace fathom
