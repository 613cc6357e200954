// Greedy decoding of one row a sequence, by a step that the backend keeps.

#include <algorithm>
#include <array>

#include "engine/runner.h"

namespace fathom {
namespace {

constexpr int64_t kHorizonStep = 1024;  // positions for which a step is recorded
constexpr int64_t kMostSteps = 4096;    // between two looks of the host

StepItem last_row(Sequence& sequence) {
  return {.sequence = &sequence, .n_rows = 1, .want = WantLogits::kLast};
}

int32_t best_id(const float* logits, int64_t n) {
  int64_t best = 0;
  for (int64_t i = 1; i < n; ++i) {
    const bool first_number = logits[best] != logits[best] && logits[i] == logits[i];
    if (first_number || logits[i] > logits[best]) best = i;
  }
  return static_cast<int32_t>(best);
}

int64_t longest(std::span<Sequence* const> sequences) {
  int64_t length = 0;
  for (const Sequence* s : sequences) length = std::max(length, s->length);
  return length;
}

}  // namespace

Result<std::vector<int32_t>> Runner::decode_greedy(std::span<Sequence* const> sequences,
                                                   int64_t n_steps) {
  FATHOM_CHECK(!sequences.empty() && n_steps > 0);
  for (const Sequence* s : sequences) {
    FATHOM_CHECK(s->pending() == 1);
    if (static_cast<int64_t>(s->tokens.size()) + n_steps <= options_.context) continue;
    return exhausted("context: wanted at most " + std::to_string(options_.context) +
                     " tokens, found " + std::to_string(s->tokens.size()) + " and " +
                     std::to_string(n_steps) + " to decode; raise --context");
  }
  if (!records(sequences)) return decode_by_steps(sequences, n_steps);
  std::vector<int32_t> ids;
  while (n_steps > 0) {
    const int64_t n = std::min(n_steps, kMostSteps);
    if (!recorded_for(sequences, n)) FATHOM_RETURN_IF_ERROR(record(sequences, n));
    FATHOM_ASSIGN_OR_RETURN(const std::vector<int32_t> some, run_recorded(sequences, n));
    ids.insert(ids.end(), some.begin(), some.end());
    n_steps -= n;
  }
  return ids;
}

Result<std::vector<int32_t>> Runner::decode_by_steps(std::span<Sequence* const> sequences,
                                                     int64_t n_steps) {
  std::vector<int32_t> ids;
  std::vector<StepItem> items;
  for (Sequence* s : sequences) items.push_back(last_row(*s));
  for (int64_t i = 0; i < n_steps; ++i) {
    FATHOM_ASSIGN_OR_RETURN(const Tensor logits, step(items));
    for (size_t s = 0; s < sequences.size(); ++s) {
      ids.push_back(best_id(logits.row<float>(static_cast<int64_t>(s)), logits.dim(1)));
      FATHOM_RETURN_IF_ERROR(append(*sequences[s], {&ids.back(), 1}));
    }
  }
  return ids;
}

// Steady decoding: the next row of every sequence is its last one, and nothing is replayed.
bool Runner::records(std::span<Sequence* const> sequences) const {
  if (ops_.recorder() == nullptr || ops_.probing()) return false;
  return std::ranges::all_of(sequences, [&](const Sequence* s) {
    const bool decoder = !model_.has_decoder() || s->decoder_length == s->length;
    return s->image.empty() && decoder && s->entries_end == s->length;
  });
}

bool Runner::recorded_for(std::span<Sequence* const> sequences, int64_t n_steps) const {
  const Recorded& r = recorded_;
  const Recorder& recorder = *ops_.recorder();
  if (!recorder.valid() || recorder.number() != r.number || r.steps != steps_ ||
      r.sequences.size() != sequences.size()) {
    return false;
  }
  for (size_t i = 0; i < sequences.size(); ++i) {
    const Sequence& s = *sequences[i];
    const bool same = r.sequences[i] == &s && r.lengths[i] == s.length &&
                      r.pending[i] == s.tokens.back() && r.blocks[i] == s.blocks.front();
    if (!same) return false;
  }
  return longest(sequences) + n_steps <= r.horizon;
}

GreedyArgs Runner::greedy_args(int64_t n_rows, int64_t n_log) const {
  GreedyArgs args = {.ids = first(workspace_.ids, n_rows),
                     .logits = first(workspace_.logits, n_rows),
                     .log = recorded_.log.view(0, DType::kI32, std::array{n_rows, n_log}),
                     .count = recorded_.count.view(0, DType::kI64, std::array{n_rows})};
  if (model_.config().text_config.engram_layer_ids.empty()) return args;
  const auto vocab = static_cast<int64_t>(model_.token_map().size());
  args.lookback = first(workspace_.lookback, n_rows);
  args.canonical = recorded_.canonical.view(0, DType::kI32, std::array{vocab});
  return args;
}

Result<void> Runner::record(std::span<Sequence* const> sequences, int64_t n_steps) {
  DeviceMemory& memory = ops_.memory();
  const auto n_rows = static_cast<int64_t>(sequences.size());
  const int64_t end = longest(sequences) + n_steps;
  Recorded& r = recorded_;
  r.horizon = std::min(options_.context, (end / kHorizonStep + 1) * kHorizonStep);
  const std::span<const int32_t> map = model_.token_map();
  if (r.canonical.data() == nullptr && !map.empty()) {
    const auto n_bytes = static_cast<int64_t>(map.size_bytes());
    FATHOM_ASSIGN_OR_RETURN(r.canonical, memory.allocate(n_bytes, "canonical ids"));
    memory.write(r.canonical.data(), map.data(), n_bytes);
  }
  const int64_t log_bytes = n_rows * kMostSteps * dtype_bytes(DType::kI32);
  if (r.log.bytes() < log_bytes) {
    FATHOM_ASSIGN_OR_RETURN(r.log, memory.allocate(log_bytes, "decoded ids"));
    FATHOM_ASSIGN_OR_RETURN(
        r.count, memory.allocate(n_rows * dtype_bytes(DType::kI64), "counts of decoded ids"));
  }
  std::vector<SequenceStep> encoder;
  std::vector<SequenceStep> decoder;
  std::vector<int64_t> wanted;
  for (Sequence* s : sequences) {
    reserve(*s, std::min(options_.context, s->length + r.horizon - end + n_steps));
    SequenceStep one = {.rows = {.n_rows = 1,
                                 .first_position = s->length,
                                 .window_low = s->encoder_low,
                                 .write_from = s->entries_end},
                        .tokens = s->tokens,
                        .image = s->image,
                        .blocks = s->blocks,
                        .slot = s->slot};
    encoder.push_back(one);
    one.rows.window_low = s->decoder_low;
    one.rows.write_from = 0;
    decoder.push_back(one);
    wanted.push_back(static_cast<int64_t>(wanted.size()));
  }
  FATHOM_RETURN_IF_ERROR(memory.sync());
  Recorder& recorder = *ops_.recorder();
  recorder.begin(r.horizon);
  const Step step(this->memory(), encoder);
  const Boundary boundary = model_.encode(step, ops_, workspace_);
  model_.project_decoder_kv(step, boundary, ops_, workspace_);
  model_.decode(Step(this->memory(), decoder), boundary, wanted, ops_, workspace_);
  ops_.greedy(greedy_args(n_rows, kMostSteps));
  FATHOM_RETURN_IF_ERROR(recorder.end());
  r.sequences.assign(sequences.begin(), sequences.end());
  r.lengths.clear();
  r.pending.clear();
  r.blocks.clear();
  for (const Sequence* s : sequences) {
    r.lengths.push_back(s->length);
    r.pending.push_back(s->tokens.back());
    r.blocks.push_back(s->blocks.front());
  }
  r.number = recorder.number();
  r.steps = steps_;
  return {};
}

Result<std::vector<int32_t>> Runner::run_recorded(std::span<Sequence* const> sequences,
                                                  int64_t n_steps) {
  DeviceMemory& memory = ops_.memory();
  const auto n_rows = static_cast<int64_t>(sequences.size());
  const std::vector<int64_t> none(sequences.size());
  memory.write(recorded_.count.data(), none.data(), n_rows * dtype_bytes(DType::kI64));
  for (int64_t i = 0; i < n_steps; ++i) ops_.recorder()->run();
  std::vector<int32_t> log(static_cast<size_t>(n_rows * kMostSteps));
  memory.read(log.data(), recorded_.log.data(), static_cast<int64_t>(log.size() * sizeof(log[0])));
  ++steps_;
  if (const Result<void> done = memory.sync(); !done) {
    for (Sequence* s : sequences) restart(*s, s->length, RestoreGrade::kExact);
    return done.error();
  }
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < n_steps; ++i) {
    for (int64_t s = 0; s < n_rows; ++s)
      ids.push_back(log[static_cast<size_t>(s * kMostSteps + i)]);
  }
  for (int64_t i = 0; i < n_rows; ++i) {
    Sequence& s = *sequences[static_cast<size_t>(i)];
    const auto* chosen = log.data() + i * kMostSteps;
    s.tokens.insert(s.tokens.end(), chosen, chosen + n_steps);
    s.length += n_steps;
    s.entries_end = s.length;
    s.decoder_length = s.length;
    s.tail_low = s.length;  // a recorded step keeps no boundary rows
    recorded_.lengths[static_cast<size_t>(i)] = s.length;
    recorded_.pending[static_cast<size_t>(i)] = s.tokens.back();
  }
  recorded_.steps = steps_;
  return ids;
}

}  // namespace fathom
