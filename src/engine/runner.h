#pragma once

// Runner: composes the model's schedules into steps over sequences and owns the pools of their
// state. Source: spec/backbone.md section 4; docs/design.md section 6.
//
//   exact:   every layer over every row. The oracle.
//   deploy:  encoder and the decoder's entries over every prompt row, decoder over the last
//            sliding_window prompt rows only, then decode over all layers.
//
// Thread rule: one thread.

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cache/kv_pool.h"
#include "engine/sequence.h"
#include "model/model.h"

namespace fathom {

enum class Schedule : uint8_t { kExact, kDeploy };

// How windows are rebuilt after a rewind: from as many rows as exactness needs, or from the last
// sliding_window rows (spec/backbone.md 4.5).
enum class RestoreGrade : uint8_t { kExact, kBounded };

struct RunnerOptions {
  Schedule schedule = Schedule::kDeploy;
  int64_t context = 4096;   // positions a sequence may hold
  int64_t n_sequences = 1;  // open at once
  int64_t n_blocks = 0;     // of the pool; 0: enough for n_sequences whole contexts
  int64_t max_rows = 256;   // of a step
  int64_t max_logit_rows = 1;
};

enum class WantLogits : uint8_t { kNone, kLast, kAll };

// `n_rows` pending tokens of one sequence join the step. kAll takes all of them through the
// decoder, which in the deploy schedule has seen all rows before them; the sequence is then the one
// of the exact schedule. kLast is meant for the row of the last pending token.
struct StepItem {
  Sequence* sequence = nullptr;
  int64_t n_rows = 0;
  WantLogits want = WantLogits::kNone;
};

class Runner {
 public:
  // kInvalid for a context of more than kPositionsMax (ops/rows.h); kExhausted where the memory for
  // it is not to be had.
  static Result<std::unique_ptr<Runner>> make(const Model& model, Ops& ops,
                                              const RunnerOptions& options);

  const Model& model() const { return model_; }
  const RunnerOptions& options() const { return options_; }
  Ops& ops() { return ops_; }
  // Rows of a window ring: sliding_window, or what the context leaves of it (kv_for_context).
  int64_t window() const { return window_; }

  // For an owner of sequences that gives them their blocks itself and takes them out before
  // close(). Without one, a sequence takes blocks as it grows, and n_blocks stays 0.
  KvPool& blocks() { return blocks_; }
  WindowPool& windows() { return windows_; }

  Result<Sequence> open();
  void close(Sequence& sequence);

  // Checks ids and length and adds them as pending tokens. `image` is empty or as long as tokens.
  Result<void> append(Sequence& sequence, std::span<const int32_t> tokens,
                      std::span<const uint8_t> image = {});

  // Computes pending rows of several sequences together; at most max_rows in all, and at most
  // max_rows in the decoder, where in the deploy schedule an item that ends its pending tokens
  // brings up to sliding_window rows. Returns logits [wanted rows, vocab] f32 on the host, in the
  // order of items and positions, valid until the next step. Where the backend failed, in one line
  // what failed: then the sequences are where they were before the step, with its rows pending
  // again and their windows to be rebuilt, as after a rewind.
  Result<Tensor> step(std::span<const StepItem> items);

  // A sequence with one pending token behind `length` random ones whose state is random too, in the
  // formats of the caches: for measurements at a context; what it says means nothing.
  Result<Sequence> invent(int64_t length, uint64_t seed);

  // n_steps greedy steps of sequences that each have one pending token, as step() and the largest
  // logit (the smaller id among equals) would make them: [step][sequence] ids, which are appended,
  // the last ones pending. A backend that can keep a step (ops/recorder.h) runs it n_steps times
  // without the host in between. kExhausted where a context is too small; where the backend fails,
  // the sequences are as after a failed step, without the ids. Not for sequences whose blocks an
  // owner gives: a recording takes those of all its positions.
  Result<std::vector<int32_t>> decode_greedy(std::span<Sequence* const> sequences, int64_t n_steps);

  // Runs all pending tokens in chunks of at most `chunk` rows (0: max_rows) and returns the logits
  // of the last one [1, vocab]. `progress(done, all)` may be null; returning false stops with
  // kCancelled at a chunk boundary, and what was computed stays.
  using Progress = std::function<bool(int64_t done, int64_t all)>;
  Result<Tensor> prefill(Sequence& sequence, int64_t chunk = 0, const Progress& progress = {});

  // Cuts the sequence to `position` tokens. Entries below stay; windows are rebuilt by the rows
  // that this marks pending again.
  void rewind(Sequence& sequence, int64_t position, RestoreGrade grade);

  // Rows below a position that rewind() makes pending again, at most.
  int64_t replay_rows(RestoreGrade grade) const;

  // Whether its state is that of its first `length` tokens, so that a prompt with those in front
  // can be computed from there: no rows are being replayed, and the boundary rows are there that
  // its decoder begins with.
  bool can_branch(const Sequence& sequence) const;
  // Makes a sequence that can_branch() one whose prompt has not ended yet.
  void branch(Sequence& sequence);

  // All that a sequence is, as bytes: tokens and positions, its blocks, its windows and remainders
  // and the boundary rows that its decoder has not seen, then a SHA-256 of all that. A function of
  // the sequence alone: neither where it lies in the pools nor what lay there before shows. The
  // weights are not named: whoever keeps the bytes keys them by the weights' fingerprint. Fails
  // where the backend does.
  Result<std::vector<std::byte>> save(const Sequence& sequence) const;

  // The sequence of save(), continued with the same bits by any runner of the same weights and
  // schedule. kInvalid, and nothing is taken, for bytes that were changed or cut, that are of
  // another layout (KvSpec::id; a context below sliding_window has its own) or schedule, or that
  // say what no sequence can be; kExhausted where the context or the pools are too small. `where`
  // names the bytes in messages.
  Result<Sequence> restore(std::span<const std::byte> bytes, const std::string& where);

 private:
  // What a runner allocates, once.
  struct Memory {
    KvSpec spec;
    KvPool blocks;
    WindowPool windows;
    Workspace workspace;
    Buffer decoder;
    Buffer logits;
  };
  Runner(const Model& model, Ops& ops, const RunnerOptions& options, Memory memory);

  void reserve(Sequence& sequence, int64_t end);
  void restart(Sequence& sequence, int64_t position, RestoreGrade grade);
  Tensor compute(std::span<const StepItem> items);
  Result<Tensor> to_host(const Tensor& logits);
  Boundary tail_of(const Sequence& sequence) const;
  void keep_tail(const Sequence& sequence, int64_t begin, const Boundary& rows);
  Tensor decode_in_place(std::span<const StepItem> items, const Boundary& boundary);
  Tensor decode_gathered(std::span<const StepItem> items, const Step& step,
                         const Boundary& boundary);
  StateMemory memory() const;
  void blank_dead_rows(const Sequence& sequence, std::span<std::byte> state) const;
  Result<void> fill(Sequence& sequence, std::span<const std::byte> content,
                    const std::string& where);

  // The recorded step of decode_greedy and what it was recorded for.
  struct Recorded {
    std::vector<const Sequence*> sequences;
    std::vector<int64_t> lengths;  // where the next run begins
    std::vector<int32_t> pending;
    std::vector<BlockId> blocks;
    int64_t horizon = 0;
    int64_t number = 0;  // Recorder::number
    int64_t steps = 0;   // counts the runner's steps, the recorded ones too
    Buffer canonical;
    Buffer log;
    Buffer count;
  };
  bool records(std::span<Sequence* const> sequences) const;
  Result<void> record(std::span<Sequence* const> sequences, int64_t n_steps);
  bool recorded_for(std::span<Sequence* const> sequences, int64_t n_steps) const;
  Result<std::vector<int32_t>> run_recorded(std::span<Sequence* const> sequences, int64_t n_steps);
  Result<std::vector<int32_t>> decode_by_steps(std::span<Sequence* const> sequences,
                                               int64_t n_steps);
  GreedyArgs greedy_args(int64_t n_rows, int64_t n_log) const;

  const Model& model_;
  Ops& ops_;
  RunnerOptions options_;
  KvSpec spec_;  // of this context
  int64_t window_ = 0;
  KvPool blocks_;
  WindowPool windows_;
  Workspace workspace_;
  Buffer decoder_memory_;  // gathered boundary rows of a deploy step
  Buffer host_logits_;     // where the workspace lies elsewhere
  Recorded recorded_;
  int64_t steps_ = 0;
};

}  // namespace fathom
