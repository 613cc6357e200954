#pragma once

// Executor: whoever computes rows. ModelExecutor runs the model; tests have another. The engine
// decides who runs when and which blocks are whose; an executor decides nothing.
//
// Contract: the answer of a sequence is a function of its tokens, its sampling options, its masks
// and the exactness of its windows, never of what else is in a step. Thread rule: the engine
// thread.

#include <span>
#include <vector>

#include "cache/kv_pool.h"
#include "cache/session_cache.h"
#include "engine/runner.h"
#include "engine/sampler.h"
#include "engine/sequence.h"

namespace fathom {

struct TokenLogprob {
  int32_t id = 0;
  float logprob = 0;
};

struct SampledToken {
  int32_t id = 0;
  float logprob = 0;              // of the model's own distribution, before any sampling option
  std::vector<TokenLogprob> top;  // the most likely tokens of the same distribution, if asked for
};

inline constexpr int64_t kTopLogprobsMax = 20;

// A token of a prompt behind the first, as the model foresaw it from those before it.
struct PromptLogprob {
  TokenLogprob token;
  int64_t rank = 0;               // its place among all tokens, from 1; ties go to the smaller id
  std::vector<TokenLogprob> top;  // the most likely ones, if asked for
};

struct ExecutorLimits {
  int64_t context = 0;      // positions of a sequence
  int64_t n_sequences = 0;  // window slots
  int64_t max_rows = 0;     // of a step
  int64_t end_rows = 0;     // decoder rows that an item brings which ends a prompt: at most this
                            // many, and at most max_rows a step; 0: no more than its own rows
  int64_t feed_rows = 0;    // rows of an answer that may be fed again at once
  int64_t exact_replay_rows = 0;  // that restore() makes pending again, at most
  int64_t bounded_replay_rows = 0;
  int64_t prompt_logit_rows = 0;  // of a step, of items with a `prompt`; 0: it takes none
  int64_t vocab_size = 0;
};

// `n_rows` pending tokens of a sequence. Where they are all of them, one token is drawn for each
// of `draws` from the last row, among those that `mask` allows (engine/sampler.h).
struct ExecutorItem {
  Sequence* sequence = nullptr;
  int64_t n_rows = 0;
  int64_t prompt_tokens = 0;
  std::span<const SamplingOptions> draws;
  int64_t top_logprobs = 0;  // tokens beside each drawn one, at most kTopLogprobsMax
  std::span<const uint64_t> mask;
  // Not null: all the rows go through decoder and head, in either schedule, as all rows of the
  // sequence before them did, and what they say of the prompt's tokens is added.
  std::vector<PromptLogprob>* prompt = nullptr;
  int64_t prompt_top = 0;  // tokens beside each of them, at most kTopLogprobsMax
};

class Executor {
 public:
  virtual ~Executor() = default;

  virtual ExecutorLimits limits() const = 0;
  virtual KvPool& blocks() = 0;
  virtual WindowPool& windows() = 0;
  virtual DeviceMemory& memory() = 0;

  // An empty sequence with a slot. close() gives the slot back, and never blocks: those are whose
  // lease they are in.
  virtual Result<Sequence> open() = 0;
  virtual void close(Sequence& sequence) = 0;

  // The slot alone back and forth, for a sequence whose windows are kept elsewhere meanwhile.
  virtual void release_slot(Sequence& sequence) = 0;
  virtual Result<void> take_slot(Sequence& sequence) = 0;

  // Makes an empty sequence one whose entries of `prefix` (whole blocks) lie in `blocks`, with the
  // rows that rebuild its windows pending. Whether those windows will be exact.
  virtual bool restore(Sequence& sequence, std::span<const int32_t> prefix,
                       std::span<const BlockId> blocks, RestoreGrade grade) = 0;

  // Whether the state is that of the sequence's first `length` tokens alone, so that branch() can
  // go on from it with others behind them.
  virtual bool can_branch(const Sequence& sequence) const = 0;

  // As restore(), from the pack_state() of a sequence that could branch, whose `length` tokens are
  // the first ones of `prefix`; what of `prefix` is behind them is pending and writes no entries.
  virtual void branch(Sequence& sequence, std::span<const int32_t> prefix,
                      std::span<const BlockId> blocks, std::span<const std::byte> state) = 0;

  // Adds pending tokens, `image` empty or as long as they.
  virtual Result<void> append(Sequence& sequence, std::span<const int32_t> tokens,
                              std::span<const uint8_t> image) = 0;

  // An empty sequence with a slot becomes a copy of `from`, blocks excepted, at the same position.
  virtual void copy(Sequence& to, const Sequence& from) = 0;

  // Blocks of the sequences back every position of the rows. Tokens in the order of items and
  // draws. On failure the sequences are not to be used further, except to be closed.
  virtual Result<std::vector<SampledToken>> step(std::span<const ExecutorItem> items) = 0;
};

// Windows and remainders of a sequence as bytes, and back into its slot.
std::vector<std::byte> read_slot(Executor& executor, const Sequence& sequence);
void write_slot(Executor& executor, const Sequence& sequence, std::span<const std::byte> bytes);

// All of a sequence that lies in no block: its positions, its slot (from read_slot) and its
// boundary rows. unpack_state() puts them into a sequence with a slot.
std::vector<std::byte> pack_state(Executor& executor, const Sequence& sequence,
                                  std::span<const std::byte> slot);
void unpack_state(Executor& executor, Sequence& sequence, std::span<const std::byte> state);

// Whether a state that is kept as one of n_tokens tokens can be branched from: its parts have the
// sizes of this executor's, its positions are possible. `sequence` has a slot. Of what came from
// elsewhere; what this process kept always does.
bool fits_state(Executor& executor, const Sequence& sequence, const SessionState& state,
                int64_t n_tokens);

std::vector<std::byte> read_block(Executor& executor, BlockId id);
void write_block(Executor& executor, BlockId id, std::span<const std::byte> bytes);

}  // namespace fathom
