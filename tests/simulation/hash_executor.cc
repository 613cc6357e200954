#include "hash_executor.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace fathom {
namespace {

constexpr int64_t kEncoderLayers = 2;
constexpr int64_t kDecoderLayers = 2;
constexpr int64_t kTail = kEncoderLayers;  // rings: encoder inputs, boundary rows, decoder inputs
constexpr int64_t kDecoder = kTail + 1;
constexpr int64_t kRings = kDecoder + kDecoderLayers;

uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9E3779B97F4A7C15U + b;
  x ^= x >> 32;
  x *= 0xD6E8FEB86659FD93U;
  x ^= x >> 29;
  return x;
}

uint64_t embed(int32_t token, int64_t position) {
  return mix(static_cast<uint64_t>(token) + 1, static_cast<uint64_t>(position));
}

uint64_t row_of(int64_t layer, uint64_t window, uint64_t global) {
  return mix(mix(window, static_cast<uint64_t>(layer)), global);
}

// `token` stands for a place among those that the mask allows.
int32_t allowed_token(int32_t token, std::span<const uint64_t> mask) {
  std::vector<int32_t> ids;
  for (size_t id = 0; id < mask.size() * 64; ++id) {
    if ((mask[id / 64] >> (id % 64) & 1) != 0) ids.push_back(static_cast<int32_t>(id));
  }
  return ids.empty() ? token : ids[static_cast<size_t>(token) % ids.size()];
}

int32_t token_of(uint64_t row, uint64_t seed) {
  return static_cast<int32_t>(mix(row, seed) % (kHashVocab - 1));
}

KvSpec spec_of(const HashOptions& options) {
  auto spec = KvSpec::make({.n_layers = 8,
                            .head_dim = 32,
                            .index_head_dim = 32,
                            .sliding_window = options.window,
                            .sources = {{0, 1}}});
  FATHOM_CHECK(spec->block_bytes() >= kBlockTokens * 8 + kBlockTokens / 2 * 8);
  FATHOM_CHECK(spec->session_bytes() >= kRings * options.window * 8 + 8);
  return *spec;
}

}  // namespace

bool FailingMemory::fails() {
  if (static_cast<double>(random_() % 1'000'000) >= rate_ * 1'000'000) return failed_;
  ++n_failed_;
  return failed_ = true;
}

void FailingMemory::write(void* to, const void* from, int64_t bytes) {
  if (!fails()) host_.write(to, from, bytes);
}

void FailingMemory::read(void* to, const void* from, int64_t bytes) {
  if (fails()) {
    std::memset(to, 0, static_cast<size_t>(bytes));
  } else {
    host_.read(to, from, bytes);
  }
}

Result<void> FailingMemory::sync() {
  if (!std::exchange(failed_, false)) return {};
  return io_error("failing memory: copy: wanted its end, found an injected failure");
}

HashExecutor::HashExecutor(const HashOptions& options)
    : PooledExecutor(spec_of(options), options.n_blocks, options.n_sequences,
                     options.copy_failure_rate, options.seed + 1),
      options_(options),
      random_(options.seed) {}

ExecutorLimits HashExecutor::limits() const {
  return {.context = options_.context,
          .n_sequences = options_.n_sequences,
          .max_rows = options_.max_rows,
          .end_rows = options_.deploy ? options_.window : 0,
          .feed_rows = options_.window,
          .exact_replay_rows = replay_rows(RestoreGrade::kExact),
          .bounded_replay_rows = replay_rows(RestoreGrade::kBounded),
          .vocab_size = kHashVocab};
}

int64_t HashExecutor::replay_rows(RestoreGrade grade) const {
  const int64_t n_windows = kEncoderLayers + (options_.deploy ? 1 : kDecoderLayers);
  return grade == RestoreGrade::kExact ? n_windows * (options_.window - 1) : options_.window;
}

uint64_t& HashExecutor::ring(const Sequence& sequence, int64_t layer, int64_t position) {
  uint8_t* slot = windows_.base() + static_cast<int64_t>(sequence.slot) * windows_.slot_bytes();
  const int64_t place = layer * options_.window + position % options_.window;
  return *reinterpret_cast<uint64_t*>(slot + place * 8);
}

// Of the last position where that is even: half of a pair.
uint64_t& HashExecutor::remainder(const Sequence& sequence) {
  uint8_t* slot = windows_.base() + static_cast<int64_t>(sequence.slot) * windows_.slot_bytes();
  return *reinterpret_cast<uint64_t*>(slot + kRings * options_.window * 8);
}

uint64_t& HashExecutor::entry(const Sequence& sequence, int64_t position) {
  const BlockId id = sequence.blocks.at(static_cast<size_t>(position / kBlockTokens));
  uint8_t* block = blocks_.base() + static_cast<int64_t>(id) * blocks_.block_bytes();
  return *reinterpret_cast<uint64_t*>(block + position % kBlockTokens * 8);
}

// Of the pair that an odd position ends.
uint64_t& HashExecutor::pair_entry(const Sequence& sequence, int64_t position) {
  const BlockId id = sequence.blocks.at(static_cast<size_t>(position / kBlockTokens));
  uint8_t* block = blocks_.base() + static_cast<int64_t>(id) * blocks_.block_bytes();
  return *reinterpret_cast<uint64_t*>(block + (kBlockTokens + position % kBlockTokens / 2) * 8);
}

uint64_t HashExecutor::with_entries(uint64_t hash, const Sequence& sequence, int64_t position) {
  hash = mix(hash, entry(sequence, position));
  return position % 2 == 1 ? mix(hash, pair_entry(sequence, position)) : hash;
}

bool HashExecutor::injected(double rate) {
  if (static_cast<double>(random_() % 1'000'000) >= rate * 1'000'000) return false;
  ++n_injected_;
  return true;
}

// From the memory, anew for every item of a step.
void HashExecutor::read_entries(const Sequence& sequence, int64_t end) {
  entries_.assign(1, 0);
  for (int64_t p = 0; p < end; ++p) entries_.push_back(with_entries(entries_.back(), sequence, p));
}

uint64_t HashExecutor::window_hash(const Sequence& sequence, int64_t layer, int64_t low,
                                   int64_t position) {
  uint64_t hash = 0;
  for (int64_t p = std::max(low, position - options_.window + 1); p <= position; ++p) {
    hash = mix(hash, ring(sequence, layer, p));
  }
  return hash;
}

void HashExecutor::garbage(const Sequence& sequence) {
  for (int64_t layer = 0; layer < kRings; ++layer) {
    for (int64_t p = 0; p < options_.window; ++p) ring(sequence, layer, p) = random_();
  }
  remainder(sequence) = random_();
}

void HashExecutor::release_slot(Sequence& sequence) {
  garbage(sequence);
  windows_.release(sequence.slot);
}

Result<void> HashExecutor::take_slot(Sequence& sequence) {
  if (injected(options_.allocation_failure_rate)) {
    return exhausted("hash executor: slot: wanted memory, found an injected failure");
  }
  FATHOM_ASSIGN_OR_RETURN(sequence.slot, windows_.allocate());
  garbage(sequence);
  return {};
}

bool HashExecutor::restore(Sequence& sequence, std::span<const int32_t> prefix,
                           std::span<const BlockId> blocks, RestoreGrade grade) {
  give_prefix(sequence, prefix, blocks);
  const int64_t start = std::max<int64_t>(0, sequence.entries_end - replay_rows(grade));
  sequence.length = sequence.decoder_length = start;
  sequence.encoder_low = sequence.decoder_low = sequence.tail_low = start;
  return grade == RestoreGrade::kExact || start == 0;
}

bool HashExecutor::can_branch(const Sequence& sequence) const {
  const int64_t tail = std::max<int64_t>(0, sequence.length + 1 - options_.window);
  return sequence.length == sequence.entries_end && (!options_.deploy || sequence.tail_low <= tail);
}

void HashExecutor::branch(Sequence& sequence, std::span<const int32_t> prefix,
                          std::span<const BlockId> blocks, std::span<const std::byte> state) {
  unpack_state(*this, sequence, state);
  give_prefix(sequence, prefix, blocks);
  FATHOM_CHECK(sequence.length <= sequence.entries_end);
  if (!options_.deploy) return;
  sequence.decoder_length = std::max<int64_t>(0, sequence.length - options_.window);
  sequence.decoder_low = sequence.decoder_length;
}

Result<void> HashExecutor::append(Sequence& sequence, std::span<const int32_t> tokens,
                                  std::span<const uint8_t>) {
  sequence.tokens.insert(sequence.tokens.end(), tokens.begin(), tokens.end());
  FATHOM_CHECK(static_cast<int64_t>(sequence.tokens.size()) <= options_.context);
  return {};
}

void HashExecutor::copy(Sequence& to, const Sequence& from) {
  const WindowId slot = to.slot;
  to.tokens = from.tokens;
  to.positions() = from.positions();
  to.slot = slot;
  write_slot(*this, to, read_slot(*this, from));
}

// One row through the encoder.
void HashExecutor::encode(Sequence& sequence) {
  const int64_t p = sequence.length;
  const uint64_t global = entries_.at(static_cast<size_t>(p));
  uint64_t x = embed(sequence.tokens[static_cast<size_t>(p)], p);
  for (int64_t layer = 0; layer < kEncoderLayers; ++layer) {
    ring(sequence, layer, p) = x;
    x = row_of(layer, window_hash(sequence, layer, sequence.encoder_low, p), global);
  }
  ring(sequence, kTail, p) = x;
  if (p >= sequence.entries_end) {
    entry(sequence, p) = x;
    if (p % 2 == 1) pair_entry(sequence, p) = mix(remainder(sequence), x);
  } else {
    ++sequence.replayed;
  }
  if (p % 2 == 0) remainder(sequence) = x;
  entries_.resize(static_cast<size_t>(p) + 1);
  entries_.push_back(with_entries(global, sequence, p));
  ++sequence.length;
  sequence.entries_end = std::max(sequence.entries_end, sequence.length);
}

// One row through the decoder.
uint64_t HashExecutor::decode(Sequence& sequence, int64_t p) {
  const uint64_t global = entries_.at(static_cast<size_t>(p) + 1);
  uint64_t x = ring(sequence, kTail, p);
  for (int64_t layer = 0; layer < kDecoderLayers; ++layer) {
    ring(sequence, kDecoder + layer, p) = x;
    x = row_of(kDecoder + layer, window_hash(sequence, kDecoder + layer, sequence.decoder_low, p),
               global);
  }
  sequence.decoder_length = p + 1;
  return x;
}

void HashExecutor::scribble(Sequence& sequence) {
  garbage(sequence);
  const int64_t end = static_cast<int64_t>(sequence.blocks.size()) * kBlockTokens;
  for (int64_t p = sequence.entries_end; p < end; ++p) entry(sequence, p) = random_();
  for (int64_t p = sequence.entries_end / 2 * 2 + 1; p < end; p += 2) {
    pair_entry(sequence, p) = random_();
  }
}

Result<std::vector<SampledToken>> HashExecutor::step(std::span<const ExecutorItem> items) {
  int64_t n_rows = 0;
  int64_t n_decoder_rows = 0;
  bool fails = injected(options_.failure_rate);
  for (const ExecutorItem& item : items) {
    FATHOM_CHECK(0 < item.n_rows && item.n_rows <= item.sequence->pending());
    n_rows += item.n_rows;
    fails = fails ||
            std::ranges::find(item.sequence->tokens, kPoisonToken) != item.sequence->tokens.end();
  }
  FATHOM_CHECK(n_rows <= options_.max_rows);
  if (fails) {
    for (const ExecutorItem& item : items) scribble(*item.sequence);
    return io_error("hash executor: step: wanted a result, found an injected failure");
  }
  std::vector<SampledToken> tokens;
  for (const ExecutorItem& item : items) {
    Sequence& sequence = *item.sequence;
    read_entries(sequence, sequence.length);
    uint64_t row = 0;
    for (int64_t i = 0; i < item.n_rows; ++i) {
      encode(sequence);
      if (!options_.deploy) row = decode(sequence, sequence.length - 1);
    }
    if (sequence.pending() > 0) {
      FATHOM_CHECK(item.draws.empty());
      continue;
    }
    if (options_.deploy) {
      const int64_t unseen = sequence.length - sequence.decoder_length;
      const int64_t n = std::min(unseen, options_.window);
      if (n < unseen) sequence.decoder_low = sequence.length - n;
      n_decoder_rows += n;
      for (int64_t p = sequence.length - n; p < sequence.length; ++p) row = decode(sequence, p);
    }
    for (const SamplingOptions& draw : item.draws) {
      tokens.push_back({allowed_token(token_of(row, draw.seed), item.mask), 0, {}});
    }
  }
  FATHOM_CHECK(n_decoder_rows <= options_.max_rows);
  return tokens;
}

namespace {

// Rows of all layers by position, as the definition has them.
class Definition {
 public:
  Definition(const HashOptions& options, int64_t n_prompt)
      : window_(options.window),
        decoder_low_(options.deploy ? std::max<int64_t>(0, n_prompt - options.window) : 0) {}

  uint64_t add(int32_t token) {
    const auto p = static_cast<int64_t>(encoder_[0].size());
    uint64_t x = embed(token, p);
    for (int64_t layer = 0; layer < kEncoderLayers; ++layer) {
      auto& rows = encoder_[static_cast<size_t>(layer)];
      rows.push_back(x);
      x = row_of(layer, hash(rows, 0, p), global_);
    }
    global_ = mix(global_, x);
    if (p % 2 == 1) global_ = mix(global_, mix(last_, x));
    last_ = x;
    for (int64_t layer = 0; layer < kDecoderLayers; ++layer) {
      auto& rows = decoder_[static_cast<size_t>(layer)];
      rows.push_back(x);
      if (p < decoder_low_) continue;
      x = row_of(kDecoder + layer, hash(rows, decoder_low_, p), global_);
    }
    return x;
  }

 private:
  uint64_t hash(const std::vector<uint64_t>& rows, int64_t low, int64_t end) const {
    uint64_t hash = 0;
    for (int64_t p = std::max(low, end - window_ + 1); p <= end; ++p) {
      hash = mix(hash, rows[static_cast<size_t>(p)]);
    }
    return hash;
  }

  int64_t window_;
  int64_t decoder_low_;
  std::vector<uint64_t> encoder_[kEncoderLayers];
  std::vector<uint64_t> decoder_[kDecoderLayers];
  uint64_t global_ = 0;  // of all entries
  uint64_t last_ = 0;    // entry of the position before
};

}  // namespace

std::vector<int32_t> hash_answer(const HashOptions& options, std::span<const int32_t> prompt,
                                 int64_t n_tokens, uint64_t seed) {
  Definition definition(options, static_cast<int64_t>(prompt.size()));
  uint64_t row = 0;
  for (const int32_t token : prompt) row = definition.add(token);
  std::vector<int32_t> answer;
  while (static_cast<int64_t>(answer.size()) < n_tokens) {
    answer.push_back(token_of(row, seed));
    row = definition.add(answer.back());
  }
  return answer;
}

}  // namespace fathom
