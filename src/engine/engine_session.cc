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
  if (sequence.length == 0 || !executor_.can_branch(sequence)) return;
  const std::span<const int32_t> tokens =
      std::span(sequence.tokens).first(static_cast<size_t>(sequence.length));
  const auto n_full = static_cast<size_t>(sequence.length / kBlockTokens);
  task.keys.extend(tokens, task.live->request.images);
  const SessionPlace place = {
      .parent = n_full == 0 ? task.live->root : task.keys.keys()[n_full - 1],
      .grade = task.exact ? StateGrade::kExact : StateGrade::kBounded,
      .n_tokens = sequence.length,
      .partial_ids = tokens.subspan(n_full * static_cast<size_t>(kBlockTokens)),
      .images = task.live->request.images};
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
  sessions_.keep(place, std::move(state), now_us_);
  if (task.session) sessions_.outgrow(*task.session);
}

// The state that a task starts from which shares n_blocks cached blocks, where that is no later
// than a replay up to their end would begin.
std::optional<SessionCache::Found> Engine::find_session(const EngineTask& task) const {
  const Request& request = task.live->request;
  const int64_t n_blocks = task.lease.n_shared();
  const bool bounded = request.restore == RestoreGrade::kBounded;
  const auto found = sessions_.find(
      {.root = task.live->root,
       .keys = task.keys.keys().first(static_cast<size_t>(n_blocks)),
       .tokens = std::span(request.prompt).first(static_cast<size_t>(request.prompt.size() - 1)),
       .images = request.images,
       .takes_bounded = bounded});
  const int64_t replay = bounded ? limits_.bounded_replay_rows : limits_.exact_replay_rows;
  if (!found || found->n_tokens < n_blocks * kBlockTokens - replay) return std::nullopt;
  return found;
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
