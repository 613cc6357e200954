#include "engine/runner.h"

#include <algorithm>
#include <array>
#include <numeric>

namespace fathom {
namespace {

// Views of `n_rows` boundary rows over one piece of memory.
Boundary boundary_over(const Buffer& memory, const TextConfig& text, int64_t n_rows) {
  const Tensor residual =
      memory.view(0, DType::kBf16, std::array{n_rows, text.hc_mult, text.hidden_size});
  return {.residual = residual,
          .pre = memory.view(residual.bytes(), DType::kF32, std::array{n_rows, text.hc_mult})};
}

int64_t boundary_bytes(const TextConfig& text, int64_t n_rows) {
  return n_rows * text.hc_mult * (text.hidden_size * 2 + 4);
}

RunnerOptions completed(const KvGeometry& kv, RunnerOptions options) {
  options.max_rows = std::max(options.max_rows, kv.sliding_window);
  options.max_rows = std::max(options.max_rows, options.n_sequences);
  options.max_logit_rows = std::max(options.max_logit_rows, options.n_sequences);
  if (options.n_blocks == 0) options.n_blocks = options.n_sequences * blocks_for(options.context);
  return options;
}

WorkspaceLimits limits_of(const RunnerOptions& options) {
  return {.max_rows = options.max_rows,
          .max_logit_rows = options.max_logit_rows,
          .context = options.context};
}

bool keeps_tails(const Model& model, const RunnerOptions& options) {
  return options.schedule == Schedule::kDeploy && model.has_decoder();
}

std::vector<int64_t> counted(int64_t first, int64_t n) {
  std::vector<int64_t> numbers(static_cast<size_t>(n));
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

}  // namespace

Result<std::unique_ptr<Runner>> Runner::make(const Model& model, Ops& ops,
                                             const RunnerOptions& asked) {
  if (asked.context < 1 || asked.context > kPositionsMax) {
    return invalid("context: wanted 1 to " + std::to_string(kPositionsMax) + " tokens, found " +
                   std::to_string(asked.context));
  }
  const KvGeometry kv = kv_for_context(model.plan().kv, asked.context);
  FATHOM_ASSIGN_OR_RETURN(KvSpec spec, KvSpec::make(kv));
  const RunnerOptions options = completed(kv, asked);
  DeviceMemory& memory = ops.memory();
  FATHOM_RETURN_IF_ERROR(model.prepare(ops));
  FATHOM_ASSIGN_OR_RETURN(KvPool blocks, KvPool::make(spec, options.n_blocks, memory));
  FATHOM_ASSIGN_OR_RETURN(WindowPool windows, WindowPool::make(spec, options.n_sequences, memory));
  FATHOM_ASSIGN_OR_RETURN(Workspace workspace,
                          Workspace::make(model.config(), limits_of(options), memory));
  Memory all = {
      std::move(spec), std::move(blocks), std::move(windows), std::move(workspace), {}, {}};
  if (keeps_tails(model, options)) {
    const int64_t bytes = boundary_bytes(model.config().text_config, options.max_rows);
    FATHOM_ASSIGN_OR_RETURN(all.decoder, memory.allocate(bytes, "decoder rows"));
  }
  if (memory.device() != Device::kCpu) {
    FATHOM_ASSIGN_OR_RETURN(all.logits, Buffer::allocate(all.workspace.logits.bytes(), "logits"));
  }
  return std::unique_ptr<Runner>(new Runner(model, ops, options, std::move(all)));
}

Runner::Runner(const Model& model, Ops& ops, const RunnerOptions& options, Memory memory)
    : model_(model),
      ops_(ops),
      options_(options),
      spec_(std::move(memory.spec)),
      window_(kv_for_context(model.plan().kv, options.context).sliding_window),
      blocks_(std::move(memory.blocks)),
      windows_(std::move(memory.windows)),
      workspace_(std::move(memory.workspace)),
      decoder_memory_(std::move(memory.decoder)),
      host_logits_(std::move(memory.logits)) {}

StateMemory Runner::memory() const {
  return {.spec = &spec_,
          .block_base = blocks_.base(),
          .block_bytes = blocks_.block_bytes(),
          .slot_base = windows_.base(),
          .slot_bytes = windows_.slot_bytes()};
}

Result<Sequence> Runner::open() {
  Sequence sequence;
  FATHOM_ASSIGN_OR_RETURN(sequence.slot, windows_.allocate());
  if (keeps_tails(model_, options_)) {
    const int64_t bytes = boundary_bytes(model_.config().text_config, window());
    Result<Buffer> tail = ops_.memory().allocate(bytes, "decoder rows of a sequence");
    if (!tail) {
      windows_.release(sequence.slot);
      return tail.error();
    }
    sequence.tail = std::move(*tail);
  }
  return sequence;
}

void Runner::close(Sequence& sequence) {
  for (const BlockId id : sequence.blocks) blocks_.release(id);
  windows_.release(sequence.slot);
  sequence = {};
}

Result<void> Runner::append(Sequence& sequence, std::span<const int32_t> tokens,
                            std::span<const uint8_t> image) {
  FATHOM_CHECK(image.empty() || image.size() == tokens.size());
  const auto total = static_cast<int64_t>(sequence.tokens.size() + tokens.size());
  if (total > options_.context) {
    return exhausted("context: wanted at most " + std::to_string(options_.context) +
                     " tokens, found " + std::to_string(total) +
                     "; raise --context or shorten the prompt");
  }
  const int64_t vocab_size = model_.config().text_config.vocab_size;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] >= 0 && tokens[i] < vocab_size) continue;
    return invalid("token id at position " + std::to_string(sequence.tokens.size() + i) +
                   ": wanted 0 to " + std::to_string(vocab_size - 1) + ", found " +
                   std::to_string(tokens[i]));
  }
  if (!image.empty() || !sequence.image.empty()) {
    sequence.image.resize(sequence.tokens.size());
    sequence.image.insert(sequence.image.end(), image.begin(), image.end());
    sequence.image.resize(static_cast<size_t>(total));
  }
  sequence.tokens.insert(sequence.tokens.end(), tokens.begin(), tokens.end());
  return {};
}

// Cannot run out: either the pool holds n_sequences whole contexts and append() bounds each, or
// the blocks were given.
void Runner::reserve(Sequence& sequence, int64_t end) {
  while (static_cast<int64_t>(sequence.blocks.size()) < blocks_for(end)) {
    Result<BlockId> id = blocks_.allocate();
    FATHOM_CHECK(id.has_value());
    sequence.blocks.push_back(*id);
  }
}

namespace {

SequenceStep describe(const Sequence& sequence, const SequenceRows& rows) {
  return {.rows = rows,
          .tokens = sequence.tokens,
          .image = sequence.image,
          .blocks = sequence.blocks,
          .slot = sequence.slot};
}

// The logits that the items want, as rows of a step in which item i has rows_of(i) rows.
template <typename RowsOf>
std::vector<int64_t> wanted_rows(std::span<const StepItem> items, RowsOf rows_of) {
  std::vector<int64_t> wanted;
  int64_t first = 0;
  for (const StepItem& item : items) {
    const int64_t n = rows_of(item);
    const int64_t n_wanted = item.want == WantLogits::kAll ? n : item.want == WantLogits::kLast;
    for (int64_t row = first + n - n_wanted; row < first + n; ++row) wanted.push_back(row);
    first += n;
  }
  return wanted;
}

}  // namespace

Result<Tensor> Runner::step(std::span<const StepItem> items) {
  ++steps_;
  std::vector<int64_t> lengths;
  std::vector<int64_t> entries;
  for (const StepItem& item : items) {
    lengths.push_back(item.sequence->length);
    entries.push_back(item.sequence->entries_end);
  }
  Result<Tensor> logits = to_host(compute(items));
  if (logits) return logits;
  for (size_t i = 0; i < items.size(); ++i) {
    items[i].sequence->entries_end = entries[i];
    restart(*items[i].sequence, lengths[i], RestoreGrade::kExact);
  }
  return logits;
}

Result<Tensor> Runner::to_host(const Tensor& logits) {
  if (logits.device == Device::kCpu) return logits;
  Tensor host = logits;
  host.data = host_logits_.data();
  host.device = Device::kCpu;
  ops_.memory().read(host.data, logits.data, logits.bytes());
  FATHOM_RETURN_IF_ERROR(ops_.memory().sync());
  return host;
}

Tensor Runner::compute(std::span<const StepItem> items) {
  std::vector<SequenceStep> rows;
  bool in_place = true;  // the decoder sees exactly the step's rows
  for (const StepItem& item : items) {
    Sequence& sequence = *item.sequence;
    FATHOM_CHECK(0 < item.n_rows && item.n_rows <= sequence.pending());
    const int64_t end = sequence.length + item.n_rows;
    reserve(sequence, end);
    rows.push_back(describe(sequence, {.n_rows = item.n_rows,
                                       .first_position = sequence.length,
                                       .window_low = sequence.encoder_low,
                                       .write_from = sequence.entries_end}));
    const bool whole = item.want == WantLogits::kAll;
    const bool current = sequence.decoder_length == sequence.length;
    FATHOM_CHECK(current || !whole || options_.schedule == Schedule::kExact);
    const bool ends = item.n_rows == sequence.pending() && item.n_rows <= window();
    in_place = in_place && (options_.schedule == Schedule::kExact || (current && (whole || ends)));
  }
  const Step step(memory(), rows);
  const Boundary boundary = model_.encode(step, ops_, workspace_);
  model_.project_decoder_kv(step, boundary, ops_, workspace_);
  for (size_t i = 0; i < items.size(); ++i) {
    Sequence& sequence = *items[i].sequence;
    const int64_t first = step.rows().first_row(static_cast<int64_t>(i));
    if (keeps_tails(model_, options_)) {
      keep_tail(sequence, sequence.length, boundary.rows(first, first + items[i].n_rows));
    }
    sequence.replayed +=
        std::clamp<int64_t>(sequence.entries_end - sequence.length, 0, items[i].n_rows);
    sequence.length += items[i].n_rows;
    sequence.entries_end = std::max(sequence.entries_end, sequence.length);
  }
  if (in_place || !model_.has_decoder()) return decode_in_place(items, boundary);
  return decode_gathered(items, step, boundary);
}

Tensor Runner::decode_in_place(std::span<const StepItem> items, const Boundary& boundary) {
  std::vector<SequenceStep> rows;
  for (const StepItem& item : items) {
    Sequence& sequence = *item.sequence;
    rows.push_back(describe(sequence, {.n_rows = item.n_rows,
                                       .first_position = sequence.length - item.n_rows,
                                       .window_low = sequence.decoder_low}));
    sequence.decoder_length = sequence.length;
  }
  const std::vector<int64_t> wanted =
      wanted_rows(items, [](const StepItem& item) { return item.n_rows; });
  return model_.decode(Step(memory(), rows), boundary, wanted, ops_, workspace_);
}

// Items that end their pending tokens bring the last window of what the decoder has not seen, and
// those that want all logits the rows of the step.
Tensor Runner::decode_gathered(std::span<const StepItem> items, const Step& step,
                               const Boundary& boundary) {
  const TextConfig& text = model_.config().text_config;
  std::vector<SequenceStep> rows;
  std::vector<StepItem> decoding;
  const Boundary gathered = boundary_over(decoder_memory_, text, options_.max_rows);
  int64_t n_rows = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    const StepItem& item = items[i];
    Sequence& sequence = *item.sequence;
    const bool whole = item.want == WantLogits::kAll;
    if (sequence.pending() > 0 && !whole) continue;
    const int64_t unseen = sequence.length - sequence.decoder_length;
    const int64_t n = whole ? item.n_rows : std::min(unseen, window());
    const int64_t begin = sequence.length - n;
    if (n < unseen) sequence.decoder_low = begin;
    FATHOM_CHECK(n_rows + n <= options_.max_rows);
    const int64_t first_row = step.rows().first_row(static_cast<int64_t>(i));
    std::vector<int64_t> places = counted(whole ? first_row : begin, n);
    if (!whole) {
      for (int64_t& place : places) place %= window();
    }
    const Boundary in = whole ? boundary : tail_of(sequence);
    const Boundary out = gathered.rows(n_rows, n_rows + n);
    ops_.gather_rows({.out = out.residual, .in = in.residual, .rows = places});
    ops_.gather_rows({.out = out.pre, .in = in.pre, .rows = places});
    rows.push_back(describe(
        sequence, {.n_rows = n, .first_position = begin, .window_low = sequence.decoder_low}));
    decoding.push_back({.sequence = &sequence, .n_rows = n, .want = item.want});
    sequence.decoder_length = sequence.length;
    n_rows += n;
  }
  if (n_rows == 0) return first(workspace_.logits, 0);
  const std::vector<int64_t> wanted =
      wanted_rows(std::span<const StepItem>(decoding), [](const StepItem& i) { return i.n_rows; });
  return model_.decode(Step(memory(), rows), gathered.rows(0, n_rows), wanted, ops_, workspace_);
}

Boundary Runner::tail_of(const Sequence& sequence) const {
  return boundary_over(sequence.tail, model_.config().text_config, window());
}

// Puts the last rows into the ring, in at most two runs of consecutive places.
void Runner::keep_tail(const Sequence& sequence, int64_t begin, const Boundary& rows) {
  const Boundary tail = tail_of(sequence);
  const int64_t n_rows = rows.pre.dim(0);
  int64_t row = std::max<int64_t>(0, n_rows - window());
  while (row < n_rows) {
    const int64_t place = (begin + row) % window();
    const int64_t n = std::min(n_rows - row, window() - place);
    const std::vector<int64_t> from = counted(row, n);
    ops_.gather_rows(
        {.out = tail.residual.rows(place, place + n), .in = rows.residual, .rows = from});
    ops_.gather_rows({.out = tail.pre.rows(place, place + n), .in = rows.pre, .rows = from});
    row += n;
  }
}

Result<Tensor> Runner::prefill(Sequence& sequence, int64_t chunk, const Progress& progress) {
  FATHOM_CHECK(sequence.pending() > 0);
  const int64_t limit = chunk == 0 ? options_.max_rows : std::min(chunk, options_.max_rows);
  const int64_t all = sequence.pending();
  Tensor logits;
  while (sequence.pending() > 0) {
    const int64_t n = std::min(limit, sequence.pending());
    const bool last = n == sequence.pending();
    const StepItem item = {
        .sequence = &sequence, .n_rows = n, .want = last ? WantLogits::kLast : WantLogits::kNone};
    FATHOM_ASSIGN_OR_RETURN(logits, step({&item, 1}));
    if (progress && !progress(all - sequence.pending(), all) && sequence.pending() > 0) {
      return Error{ErrorCode::kCancelled, "prefill: cancelled"};
    }
  }
  return logits;
}

void Runner::rewind(Sequence& sequence, int64_t position, RestoreGrade grade) {
  FATHOM_CHECK(0 <= position && position <= sequence.length);
  sequence.tokens.resize(static_cast<size_t>(position));
  if (!sequence.image.empty()) sequence.image.resize(static_cast<size_t>(position));
  sequence.entries_end = position;
  restart(sequence, position, grade);
}

int64_t Runner::replay_rows(RestoreGrade grade) const {
  if (grade == RestoreGrade::kBounded) return window();
  // Each layer's window makes one more window of rows inexact. In the deploy schedule the encoder
  // must be exact one window earlier, where the decoder's rows of the next token begin.
  const int64_t n_windows = options_.schedule == Schedule::kExact
                                ? model_.config().text_config.num_hidden_layers
                                : model_.plan().n_encoder_layers + (model_.has_decoder() ? 1 : 0);
  return n_windows * (window() - 1);
}

// Windows up to `position` are gone: rows before it become pending again.
void Runner::restart(Sequence& sequence, int64_t position, RestoreGrade grade) {
  const int64_t start = std::max<int64_t>(0, position - replay_rows(grade));
  sequence.length = start;
  sequence.encoder_low = start;
  sequence.decoder_length = start;
  sequence.decoder_low = start;
  sequence.tail_low = start;
}

bool Runner::can_branch(const Sequence& sequence) const {
  const bool current = sequence.length == sequence.entries_end;
  if (!keeps_tails(model_, options_)) return current;
  return current && sequence.tail_low <= std::max<int64_t>(0, sequence.length + 1 - window());
}

void Runner::branch(Sequence& sequence) {
  FATHOM_CHECK(can_branch(sequence));
  if (!keeps_tails(model_, options_)) return;
  // The decoder sees the last window of a prompt alone, wherever an earlier prompt ended.
  sequence.decoder_length = std::max<int64_t>(0, sequence.length - window());
  sequence.decoder_low = sequence.decoder_length;
}

}  // namespace fathom
