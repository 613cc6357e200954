#include "scripted_executor.h"

#include <algorithm>
#include <boost/asio.hpp>
#include <chrono>

#include "base/clock.h"

namespace fathom {
namespace {

// As small as streams can be: nothing is kept in them.
KvSpec smallest_spec() {
  return *KvSpec::make({.n_layers = 1,
                        .head_dim = 32,
                        .index_head_dim = 32,
                        .sliding_window = 1,
                        .sources = {{0, 1}}});
}

}  // namespace

ScriptedExecutor::ScriptedExecutor(const Script& script, const Tokenizer& tokenizer, int32_t end_id,
                                   const ScriptedOptions& options)
    : PooledExecutor(smallest_spec(), options.n_blocks, options.n_sequences),
      script_(script),
      tokenizer_(tokenizer),
      end_id_(end_id),
      options_(options) {}

ExecutorLimits ScriptedExecutor::limits() const {
  return {.context = options_.context,
          .n_sequences = options_.n_sequences,
          .max_rows = options_.max_rows,
          .feed_rows = 1,
          .vocab_size = tokenizer_.vocab_size()};
}

void ScriptedExecutor::release_slot(Sequence& sequence) {
  answers_.erase(sequence.slot);
  windows_.release(sequence.slot);
}

Result<void> ScriptedExecutor::take_slot(Sequence& sequence) {
  FATHOM_ASSIGN_OR_RETURN(sequence.slot, windows_.allocate());
  return {};
}

bool ScriptedExecutor::restore(Sequence& sequence, std::span<const int32_t> prefix,
                               std::span<const BlockId> blocks, RestoreGrade) {
  give_prefix(sequence, prefix, blocks);
  sequence.length = sequence.decoder_length = sequence.entries_end;
  return true;
}

bool ScriptedExecutor::can_branch(const Sequence& sequence) const {
  return sequence.length == sequence.entries_end;
}

void ScriptedExecutor::branch(Sequence& sequence, std::span<const int32_t> prefix,
                              std::span<const BlockId> blocks, std::span<const std::byte> state) {
  unpack_state(*this, sequence, state);
  give_prefix(sequence, prefix, blocks);
}

Result<void> ScriptedExecutor::append(Sequence& sequence, std::span<const int32_t> tokens,
                                      std::span<const uint8_t>) {
  sequence.tokens.insert(sequence.tokens.end(), tokens.begin(), tokens.end());
  return {};
}

void ScriptedExecutor::copy(Sequence& to, const Sequence& from) {
  to.tokens = from.tokens;
  to.positions() = from.positions();
}

Result<const ScriptedExecutor::Answer*> ScriptedExecutor::answer_to(const ExecutorItem& item) {
  const auto known = answers_.find(item.sequence->slot);
  if (known != answers_.end()) return &known->second;
  const auto prompt =
      std::span(item.sequence->tokens).first(static_cast<size_t>(item.prompt_tokens));
  FATHOM_ASSIGN_OR_RETURN(const std::string text, tokenizer_.decode_bytes(prompt));
  FATHOM_ASSIGN_OR_RETURN(const ScriptedAnswer said, script_.answer(text));
  Answer answer = {.stream = said.stream};
  if (said.stream < 0) {
    FATHOM_ASSIGN_OR_RETURN(answer.ids, tokenizer_.encode(said.text, AddedTokens::kMatch));
  }
  for (size_t i = 0; said.stream >= 0 && i < said.text.size(); ++i) {
    FATHOM_ASSIGN_OR_RETURN(const std::vector<TokenId> letter,
                            tokenizer_.encode(said.text.substr(i, 1), AddedTokens::kIgnore));
    answer.ids.insert(answer.ids.end(), letter.begin(), letter.end());
  }
  if (answer.stream >= 0 && watch_.started) watch_.started(answer.stream);
  return &answers_.emplace(item.sequence->slot, std::move(answer)).first->second;
}

int32_t ScriptedExecutor::next_of(const Answer& answer, const ExecutorItem& item) const {
  const size_t k = item.sequence->tokens.size() - static_cast<size_t>(item.prompt_tokens);
  return k < answer.ids.size() ? answer.ids[k] : end_id_;
}

// The time that a model would take.
void ScriptedExecutor::keep_pace() {
  const double end_s = last_step_s_ + static_cast<double>(options_.step_us) * 1e-6;
  const double wait_s = end_s - steady_seconds();
  if (wait_s > 0) {
    boost::asio::io_context io;
    boost::asio::steady_timer timer(io, std::chrono::microseconds(std::llround(wait_s * 1e6)));
    timer.wait();
  }
  last_step_s_ = steady_seconds();
}

Result<std::vector<SampledToken>> ScriptedExecutor::step(std::span<const ExecutorItem> items) {
  std::vector<const Answer*> answers;
  for (const ExecutorItem& item : items) {
    FATHOM_ASSIGN_OR_RETURN(const Answer* answer, answer_to(item));
    answers.push_back(answer);
  }
  if (options_.step_us > 0) keep_pace();
  std::vector<SampledToken> tokens;
  for (size_t i = 0; i < items.size(); ++i) {
    Sequence& sequence = *items[i].sequence;
    FATHOM_CHECK(0 < items[i].n_rows && items[i].n_rows <= sequence.pending());
    sequence.length += items[i].n_rows;
    sequence.decoder_length = sequence.length;
    sequence.entries_end = std::max(sequence.entries_end, sequence.length);
    const int32_t id = next_of(*answers[i], items[i]);
    for (size_t draw = 0; draw < items[i].draws.size(); ++draw) {
      tokens.push_back({.id = id, .logprob = 0});
    }
    if (watch_.drawn && answers[i]->stream >= 0 && !items[i].draws.empty()) {
      watch_.drawn(answers[i]->stream,
                   static_cast<int64_t>(sequence.tokens.size()) - items[i].prompt_tokens);
    }
  }
  return tokens;
}

}  // namespace fathom
