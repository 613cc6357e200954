// What outlives a request beside its blocks: which states are kept, and who starts from them.

#include <algorithm>

#include "engine/engine.h"

namespace fathom {

// A prompt is kept without its last token: one that repeats it has a row left to compute, and one
// whose template writes the answer before otherwise (without its reasoning, without the marker that
// asks for reasoning) differs from there on. -1: nowhere; less than a block is soon computed again.
int64_t Engine::prompt_point(const EngineTask& task) const {
  const int64_t n = task.live->prompt_tokens() - 1;
  return sessions_.limits().max_bytes > 0 && n >= kBlockTokens ? n : -1;
}

void Engine::keep(EngineTask& task) {
  const Sequence& sequence = task.sequence;
  if (sessions_.limits().max_bytes == 0 || task.phase == TaskPhase::kWaiting) return;
  if (sequence.length == 0 || copies_failed_ || !executor_.can_branch(sequence)) return;
  const std::span<const int32_t> tokens =
      std::span(sequence.tokens).first(static_cast<size_t>(sequence.length));
  const auto n_full = static_cast<size_t>(sequence.length / kBlockTokens);
  task.keys.extend(tokens, task.live->request.images);
  const SessionPlace place = {
      .parent = n_full == 0 ? task.live->root : task.keys.keys()[n_full - 1],
      .grade = task.exact ? StateGrade::kExact : StateGrade::kBounded,
      .n_tokens = sequence.length,
      .partial_ids = tokens.subspan(n_full * static_cast<size_t>(kBlockTokens)),
      .images = task.live->request.images,
      .owner = static_cast<uint64_t>(task.live->request.tenant)};
  if (sessions_.touch(session_name(place), now_us_)) return;
  SessionState state;
  const bool parked = task.phase == TaskPhase::kParked;
  state.windows =
      pack_state(executor_, sequence, parked ? task.windows : read_slot(executor_, sequence));
  if (!place.partial_ids.empty()) state.partial = read_block(executor_, task.lease.blocks[n_full]);
  if (!executor_.memory().sync()) {
    copies_failed_ = true;  // what was read is worthless
    return;
  }
  if (options_.states != nullptr) {
    options_.states->put({.name = session_name(place),
                          .n_tokens = place.n_tokens,
                          .grade = place.grade,
                          .tenant_tag = tenant_tag(task.live->root)},
                         state);
  }
  sessions_.keep(place, std::move(state), now_us_);
  if (task.session) sessions_.outgrow(*task.session);
}

int64_t Engine::replay_rows(const EngineTask& task) const {
  const bool bounded = task.live->request.restore == RestoreGrade::kBounded;
  return bounded ? limits_.bounded_replay_rows : limits_.exact_replay_rows;
}

SessionQuery Engine::session_query(const EngineTask& task, int64_t n_blocks) const {
  const Request& request = task.live->request;
  return {.root = task.live->root,
          .keys = task.keys.keys().first(static_cast<size_t>(n_blocks)),
          .tokens = std::span(request.prompt).first(request.prompt.size() - 1),
          .images = request.images,
          .takes_bounded = request.restore == RestoreGrade::kBounded,
          .min_tokens = n_blocks * kBlockTokens - replay_rows(task)};
}

// The state to start from where n_blocks of the task's path are cached, if that is no earlier than
// a replay up to their end would begin.
std::optional<SessionCache::Found> Engine::find_session(const EngineTask& task,
                                                        int64_t n_blocks) const {
  // Where the decoder has to see the prompt, there is nothing to start from.
  if (task.live->request.prompt_logprobs) return std::nullopt;
  return sessions_.find(session_query(task, n_blocks));
}

// Whether somebody else has computed so much of the prompt meanwhile that starting again from there
// saves a block. Bounded requests stay: their windows are better than a replay would make them.
bool Engine::is_overtaken(const EngineTask& task) const {
  const Request& request = task.live->request;
  if (!task.answer.empty() || request.restore == RestoreGrade::kBounded) return false;
  if (request.prompt_logprobs) return false;
  const std::span<const BlockKey> keys = task.keys.keys();
  const auto next = static_cast<size_t>(task.sequence.entries_end / kBlockTokens);
  if (next >= keys.size() || !cache_.contains(keys[next])) return false;
  const int64_t n_blocks = cache_.peek(keys).n_blocks;
  const auto found = find_session(task, n_blocks);
  const int64_t start = found ? found->n_tokens : n_blocks * kBlockTokens - replay_rows(task);
  return start >= task.sequence.length + kBlockTokens;
}

// Looked at when a task is about to run. What it gives back is cached: it gets that again, and
// more.
bool Engine::start_over_overtaken(const StepPlan& plan, int64_t now_us) {
  bool any = false;
  for (const PlanItem& item : plan.items) {
    EngineTask& task = *tasks_.at(item.id);
    if (!is_overtaken(task)) continue;
    any = true;
    ++counters_.n_overtaken;
    if (task.usage.n_dropped == 0) {  // after a drop, hits are not counted again
      task.n_given_back = task.sequence.entries_end;
      task.started = false;
    }
    release(task);
    match_prefix(task);
    run(task, now_us);
  }
  return any;
}

// Windows as they were kept; entries of the shared blocks, and of the partial one where the state
// lies behind them. The positions whose entries are there.
int64_t Engine::start_from(EngineTask& task, const SessionCache::Found& found) {
  const int64_t n_shared = task.lease.n_shared();
  if (found.n_tokens > n_shared * kBlockTokens) {
    const Result<void> grown = cache_.grow(task.lease, n_shared + 1);
    FATHOM_CHECK(grown.has_value());  // admission has reserved the worst case
    write_block(executor_, task.lease.blocks.back(), found.state->partial);
  }
  const int64_t n_entries = std::max(found.n_tokens, n_shared * kBlockTokens);
  executor_.branch(task.sequence,
                   std::span(task.live->request.prompt).first(static_cast<size_t>(n_entries)),
                   task.lease.blocks, found.state->windows);
  task.session = found.name;
  sessions_.use(found.name, now_us_);
  return n_entries;
}

}  // namespace fathom
