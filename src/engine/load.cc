#include "engine/load.h"

#include "base/file.h"
#include "checkpoint/fingerprint.h"
#include "model/inventory.h"
#include "text/engram_map.h"

namespace fathom {
namespace {

// The first of several, and how to see all of them.
Result<void> none_of(const std::vector<std::string>& problems) {
  if (problems.empty()) return {};
  std::string message = problems.front();
  if (problems.size() > 1) {
    message += " (and " + std::to_string(problems.size() - 1) + " more; `fathom check` lists them)";
  }
  return invalid(message);
}

// Weights that are not what the configuration asks for, else those with bad codes.
Result<std::vector<std::string>> weight_problems(const Checkpoint& checkpoint,
                                                 const ModelConfig& config,
                                                 const LoadOptions& options) {
  std::vector<std::string> problems = checkpoint.compare(expected_tensors(config));
  const bool looks = options.all_weights || checkpoint.payload_bytes() <= kLookedAtBytes;
  if (!looks) return problems;
  FATHOM_ASSIGN_OR_RETURN(ThreadPool pool, ThreadPool::make(options.n_threads));
  for (std::string& problem : find_bad_codes(checkpoint, pool, options.progress)) {
    problems.push_back(std::move(problem));
  }
  return problems;
}

Result<std::optional<Tokenizer>> load_tokenizer(const std::string& folder,
                                                const ModelConfig& config, bool needed) {
  const std::string path = folder + "/tokenizer.json";
  FATHOM_ASSIGN_OR_RETURN(const bool is_there, has_file(path));
  if (!needed && !is_there) return std::optional<Tokenizer>();
  FATHOM_ASSIGN_OR_RETURN(Tokenizer tokenizer, Tokenizer::load(path));
  if (tokenizer.vocab_size() > config.text_config.vocab_size) {
    return invalid(path + ": wanted at most vocab_size " +
                   std::to_string(config.text_config.vocab_size) + " tokens, found " +
                   std::to_string(tokenizer.vocab_size()));
  }
  return std::optional<Tokenizer>(std::move(tokenizer));
}

// Ids that the tokenizer does not have map to the pad token's canonical id.
Result<std::vector<int32_t>> token_map_of(const std::string& folder,
                                          const std::optional<Tokenizer>& tokenizer,
                                          const TextConfig& text) {
  std::vector<int32_t> map;
  if (text.engram_layer_ids.empty()) return map;
  if (text.engram_compressed_vocab_size == text.vocab_size) return map;
  if (!tokenizer) {
    return not_found(folder + "/tokenizer.json: wanted it, for the " +
                     std::to_string(text.engram_compressed_vocab_size) +
                     " canonical tokens of Engram, found nothing; it belongs to the model's files");
  }
  if (text.engram_pad_token_id >= tokenizer->vocab_size()) {
    return invalid(
        folder +
        "/config.json: text_config.engram_pad_token_id: wanted a token of tokenizer.json, 0 to " +
        std::to_string(tokenizer->vocab_size() - 1) + ", found " +
        std::to_string(text.engram_pad_token_id));
  }
  map = build_engram_map(*tokenizer).compressed;
  map.resize(static_cast<size_t>(text.vocab_size),
             map[static_cast<size_t>(text.engram_pad_token_id)]);
  return map;
}

}  // namespace

Result<std::vector<std::string>> model_problems(const std::string& path,
                                                const LoadOptions& options) {
  FATHOM_ASSIGN_OR_RETURN(const ConfigFile file, read_config(path + "/config.json"));
  FATHOM_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::open(path));
  FATHOM_ASSIGN_OR_RETURN(std::vector<std::string> problems,
                          weight_problems(checkpoint, file.config, options));
  const auto tokenizer = load_tokenizer(path, file.config, options.need_tokenizer);
  if (!tokenizer) {
    problems.push_back(tokenizer.error().message);
  } else if (const auto map = token_map_of(path, *tokenizer, file.config.text_config); !map) {
    problems.push_back(map.error().message);
  } else if (problems.empty()) {
    const Result<Model> model = Model::make(file.config, checkpoint, *map, {});
    if (!model) problems.push_back(model.error().message);
  }
  return problems;
}

Result<LoadedModel> load_model(const std::string& path, const LoadOptions& options) {
  LoadedModel loaded = {.path = path};
  FATHOM_ASSIGN_OR_RETURN(ConfigFile file, read_config(path + "/config.json"));
  loaded.warnings = std::move(file.warnings);
  FATHOM_ASSIGN_OR_RETURN(Checkpoint checkpoint, Checkpoint::open(path));
  loaded.checkpoint = std::make_unique<Checkpoint>(std::move(checkpoint));
  FATHOM_ASSIGN_OR_RETURN(const std::vector<std::string> problems,
                          weight_problems(*loaded.checkpoint, file.config, options));
  FATHOM_RETURN_IF_ERROR(none_of(problems));
  FATHOM_ASSIGN_OR_RETURN(loaded.tokenizer,
                          load_tokenizer(path, file.config, options.need_tokenizer));
  FATHOM_ASSIGN_OR_RETURN(std::vector<int32_t> token_map,
                          token_map_of(path, loaded.tokenizer, file.config.text_config));
  FATHOM_ASSIGN_OR_RETURN(Model model, Model::make(file.config, *loaded.checkpoint,
                                                   std::move(token_map), options.model));
  loaded.model = std::make_unique<Model>(std::move(model));
  return loaded;
}

Result<std::vector<TokenId>> raw_prompt_ids(const LoadedModel& loaded, std::string_view text,
                                            size_t ids_max) {
  const auto bos = static_cast<TokenId>(loaded.model->config().bos_token_id);
  FATHOM_ASSIGN_OR_RETURN(std::vector<TokenId> ids,
                          loaded.tokenizer->encode(text, AddedTokens::kMatch, ids_max));
  if (ids.empty() || ids.front() != bos) ids.insert(ids.begin(), bos);
  return ids;
}

}  // namespace fathom
