#include "apps/generation_flags.h"

#include <CLI/CLI.hpp>

#include "apps/numbers.h"
#include "apps/usage.h"

namespace fathom {

void GenerationFlags::add_to(CLI::App& app) {
  SamplingOptions& sampling = values.sampling;
  const auto add = [&](const char* name, auto& value, const char* help) {
    return app.add_option(name, value, help)->capture_default_str();
  };
  const auto in = [](ValueRange range) { return real_number(range.low, range.high); };
  limit_option = add("-n,--max-tokens", values.max_tokens, "Tokens of the answer at most")
                     ->check(whole_number(0, int64_t{1} << 40));
  add("--temperature", sampling.temperature, "0: always the most likely token")
      ->check(in(kTemperatureRange));
  choosing_ = {
      add("--top-p", sampling.top_p, "Keep the most likely tokens of this probability together")
          ->check(in(kShareRange)),
      add("--top-k", sampling.top_k, "Keep this many tokens, 0: all")
          ->check(whole_number(0, static_cast<int64_t>(kTopKRange.high))),
      add("--min-p", sampling.min_p, "Keep tokens of this share of the largest probability")
          ->check(in(kShareRange)),
      add("--seed", sampling.seed, "The same seed and prompt give the same answer")
          ->check(any_seed())};
  add("--repetition-penalty", sampling.repetition_penalty, "Divides logits of tokens seen before")
      ->check(in(kRepetitionRange));
  add("--presence-penalty", sampling.presence_penalty, "Taken once from tokens of the answer")
      ->check(in(kPenaltyRange));
  add("--frequency-penalty", sampling.frequency_penalty, "Taken for each time a token came")
      ->check(in(kPenaltyRange));
  // One text each: "[end]" is a text too, not a list.
  stop_option = app.add_option("--stop", values.stop, "End before this text (may be repeated)")
                    ->allow_extra_args(false);
  app.add_flag("--ignore-eos", ignore_eos, "Go on after the end token");
}

std::string GenerationFlags::hint(const TypedOptions& typed) const {
  if (values.sampling.temperature > 0) return {};
  const CLI::Option* idle = first_typed(typed, choosing_);
  return idle == nullptr ? "" : idle->get_name() + ": has no effect at temperature 0";
}

std::string GenerationFlags::cut_note(const Generated& result, int64_t context) const {
  if (result.stop_reason != StopReason::kLength) return {};
  if (static_cast<int64_t>(result.ids.size()) >= values.max_tokens) {
    return "the answer was cut at " + std::to_string(values.max_tokens) + " tokens (-n)";
  }
  return "the answer was cut where the context of " + std::to_string(context) +
         " tokens (--context) was full";
}

GenerateOptions GenerationFlags::options(const ModelConfig& config) const {
  GenerateOptions options = values;
  if (!ignore_eos) options.stop_ids = {static_cast<int32_t>(config.eos_token_id)};
  return options;
}

}  // namespace fathom
