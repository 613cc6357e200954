#include "apps/generation_flags.h"

#include <CLI/CLI.hpp>

namespace fathom {

void GenerationFlags::add_to(CLI::App& app) {
  SamplingOptions& sampling = values.sampling;
  const auto add = [&](const char* name, auto& value, const char* help) {
    return app.add_option(name, value, help)->capture_default_str();
  };
  add("-n,--max-tokens", values.max_tokens, "Tokens of the answer at most")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40));
  add("--temperature", sampling.temperature, "0: always the most likely token");
  add("--top-p", sampling.top_p, "Keep the most likely tokens of this probability together");
  add("--top-k", sampling.top_k, "Keep this many tokens, 0: all");
  add("--min-p", sampling.min_p, "Keep tokens of this share of the largest probability");
  add("--seed", sampling.seed, "The same seed and prompt give the same answer");
  add("--repetition-penalty", sampling.repetition_penalty, "Divides logits of tokens seen before");
  add("--presence-penalty", sampling.presence_penalty, "Taken once from tokens of the answer");
  add("--frequency-penalty", sampling.frequency_penalty, "Taken for each time a token came");
  app.add_option("--stop", values.stop, "End before this text (may be repeated)");
  app.add_flag("--ignore-eos", ignore_eos, "Go on after the end token");
}

GenerateOptions GenerationFlags::options(const ModelConfig& config) const {
  GenerateOptions options = values;
  std::erase(options.stop, std::string());
  if (!ignore_eos) options.stop_ids = {static_cast<int32_t>(config.eos_token_id)};
  return options;
}

}  // namespace fathom
