#include "engine/generate.h"

#include <algorithm>
#include <optional>

#include "engine/grammar_store.h"
#include "engine/stop_text.h"
#include "text/stream_decoder.h"

namespace fathom {
namespace {

double now(const GenerateEvents& events) { return events.seconds ? events.seconds() : 0; }

// Turns ids into the answer's text and tells when to end.
class Answer {
 public:
  Answer(const Tokenizer* tokenizer, const GenerateOptions& options, const GenerateEvents& events)
      : tokenizer_(tokenizer), options_(options), events_(events), stop_text_(options.stop) {
    if (tokenizer != nullptr) decoder_.emplace(*tokenizer);
  }

  bool is_stop(int32_t id) const {
    return std::ranges::find(options_.stop_ids, id) != options_.stop_ids.end();
  }

  void push(int32_t id) {
    if (!decoder_) return;
    starts_.push_back(decoded_);
    const std::string piece = *decoder_->push(id);
    decoded_ += piece.size();
    emit(stop_text_.push(piece));
  }

  // Takes away the ids behind the shortest beginning whose text begins with the answer's.
  Result<void> cut(std::vector<int32_t>& ids) const {
    if (!stop_text_.stopped()) return {};
    // No id that begins behind the answer is among them; others may, behind bytes of no character.
    auto n = static_cast<size_t>(std::ranges::lower_bound(starts_, text_.size()) - starts_.begin());
    for (; n > 0; --n) {
      FATHOM_ASSIGN_OR_RETURN(const std::string shorter,
                              tokenizer_->decode(std::span(ids).first(n - 1)));
      if (!shorter.starts_with(text_)) break;
    }
    ids.resize(n);
    return {};
  }

  void finish() {
    if (!decoder_ || stop_text_.stopped()) return;
    emit(stop_text_.push(decoder_->flush()));
    emit(stop_text_.flush());
  }

  bool stopped() const { return stop_text_.stopped(); }
  bool cancelled() const { return cancelled_; }
  const std::string& text() const { return text_; }

 private:
  void emit(const std::string& piece) {
    if (piece.empty()) return;
    text_ += piece;
    if (events_.text && !events_.text(piece)) cancelled_ = true;
  }

  const Tokenizer* tokenizer_;
  const GenerateOptions& options_;
  const GenerateEvents& events_;
  std::optional<StreamDecoder> decoder_;
  StopText stop_text_;
  std::string text_;
  size_t decoded_ = 0;          // bytes of decided text
  std::vector<size_t> starts_;  // of each id in it
  bool cancelled_ = false;
};

// The logits of ids that the tokenizer knows; a model may have rows to spare.
std::span<const float> known_logits(const Tensor& logits, const Tokenizer* tokenizer) {
  const int64_t vocab_size = logits.dim(1);
  const int64_t n =
      tokenizer == nullptr ? vocab_size : std::min<int64_t>(vocab_size, tokenizer->vocab_size());
  return {logits.as<float>(), static_cast<size_t>(n)};
}

}  // namespace

const char* stop_reason_name(StopReason reason) {
  switch (reason) {
    case StopReason::kStop:
      return "stop";
    case StopReason::kLength:
      return "length";
    case StopReason::kCancelled:
      return "cancelled";
  }
  return "?";
}

Result<Generated> generate(Runner& runner, Sequence& sequence, const Tokenizer* tokenizer,
                           const GenerateOptions& options, const GenerateEvents& events) {
  if (tokenizer == nullptr && !options.stop.empty()) {
    return invalid("stop: wanted a model with tokenizer.json to find the text, found none");
  }
  FATHOM_RETURN_IF_ERROR(validate(options.sampling));
  if (sequence.pending() == 0) return invalid("prompt: wanted at least one token, found none");
  Generated result = {.prompt_tokens = static_cast<int64_t>(sequence.tokens.size()),
                      .cached_tokens = std::max(sequence.length, sequence.entries_end)};
  const int64_t replayed_before = sequence.replayed;
  Answer answer(tokenizer, options, events);
  GrammarCursor form;
  if (options.form != nullptr) {
    FATHOM_RETURN_IF_ERROR(form.begin(*options.form, options.stop_ids));
  }

  const double prefill_start = now(events);
  FATHOM_ASSIGN_OR_RETURN(Tensor logits, runner.prefill(sequence, 0, events.prefill));
  result.prefill_seconds = now(events) - prefill_start;
  result.replayed_tokens = sequence.replayed - replayed_before;

  const auto max_tokens = static_cast<size_t>(std::max<int64_t>(options.max_tokens, 0));
  while (result.ids.size() < max_tokens) {
    FATHOM_ASSIGN_OR_RETURN(const int32_t id,
                            sample(known_logits(logits, tokenizer), sequence.tokens,
                                   result.prompt_tokens, options.sampling, form.mask()));
    if (answer.is_stop(id)) {
      result.stop_reason = StopReason::kStop;
      break;
    }
    result.ids.push_back(id);
    answer.push(id);
    bool ended = false;
    if (form.bound()) {
      FATHOM_ASSIGN_OR_RETURN(const bool goes_on, form.accept(id));
      if (goes_on) FATHOM_RETURN_IF_ERROR(form.find_mask(options.stop_ids));
      ended = !goes_on;
    }
    if (answer.stopped() || ended) result.stop_reason = StopReason::kStop;
    if (answer.cancelled()) result.stop_reason = StopReason::kCancelled;
    if (static_cast<int64_t>(sequence.tokens.size()) == runner.options().context) break;
    FATHOM_RETURN_IF_ERROR(runner.append(sequence, {&id, 1}));
    if (answer.stopped() || ended || answer.cancelled() || result.ids.size() == max_tokens) break;
    const StepItem item = {.sequence = &sequence, .n_rows = 1, .want = WantLogits::kLast};
    const double step_start = now(events);
    FATHOM_ASSIGN_OR_RETURN(logits, runner.step({&item, 1}));
    result.decode_seconds += now(events) - step_start;
    ++result.decode_steps;
  }
  answer.finish();
  result.text = answer.text();
  FATHOM_RETURN_IF_ERROR(answer.cut(result.ids));
  return result;
}

}  // namespace fathom
