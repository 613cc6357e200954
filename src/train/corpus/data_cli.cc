#include "train/corpus/data_cli.h"

#include <charconv>
#include <cstdio>
#include <filesystem>
#include <map>

#include "base/file.h"
#include "train/corpus/bpe_trainer.h"
#include "train/corpus/data_corpus.h"
#include "train/corpus/data_shards.h"
#include "train/corpus/data_store.h"

namespace fathom::train {
namespace {

using Flags = std::map<std::string, std::string>;

Result<std::string> wanted(const Flags& flags, const std::string& name) {
  const auto found = flags.find(name);
  if (found == flags.end()) return invalid("--" + name + ": wanted a value, found none");
  return found->second;
}

Result<int64_t> number_flag(const Flags& flags, const std::string& name, int64_t otherwise) {
  const auto found = flags.find(name);
  if (found == flags.end()) return otherwise;
  const std::string& text = found->second;
  int64_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || end != text.data() + text.size() || value < 0) {
    return invalid("--" + name + ": wanted a whole number, found " +
                   (text.empty() ? "none" : text));
  }
  return value;
}

Result<void> corpus_job(const Flags& flags) {
  FATHOM_ASSIGN_OR_RETURN(const std::string recipe_path, wanted(flags, "recipe"));
  FATHOM_ASSIGN_OR_RETURN(const std::string dir, wanted(flags, "dir"));
  FATHOM_ASSIGN_OR_RETURN(const std::string recipe_text, read_file(recipe_path));
  FATHOM_ASSIGN_OR_RETURN(const std::vector<SourceSpec> recipe, parse_recipe(recipe_text));
  FATHOM_ASSIGN_OR_RETURN(const std::string table, read_file(dir + "/packages.tsv"));
  FATHOM_ASSIGN_OR_RETURN(const auto packages, parse_package_table(table));
  FATHOM_ASSIGN_OR_RETURN(const std::vector<SourceText> sources,
                          build_corpus(recipe, dir + "/pkg"));
  std::filesystem::create_directories(dir + "/text");
  for (const SourceText& source : sources) {
    std::vector<std::string> texts;
    for (const Document& document : source.documents) texts.push_back(document.text);
    FATHOM_RETURN_IF_ERROR(
        write_file_atomic(dir + "/text/" + source.spec.name + ".txt", join_documents(texts)));
  }
  const std::string manifest = manifest_json(sources, packages);
  FATHOM_RETURN_IF_ERROR(write_file_atomic(dir + "/manifest.json", manifest));
  std::fputs(manifest.c_str(), stdout);
  return {};
}

// The share of a source's documents that the tokenizer learns from: about the mix of the training.
constexpr double kDocShare = 0.14, kCodeShare = 0.10;

// Calls body for every training text that falls into the sample, chosen by its digest.
template <typename Body>
Result<void> for_each_sampled(const std::vector<SourceSpec>& recipe, const std::string& dir,
                              Body body) {
  for (const SourceSpec& spec : recipe) {
    if (spec.split != Split::kTrain) continue;
    FATHOM_ASSIGN_OR_RETURN(const std::string joined,
                            read_file(dir + "/text/" + spec.name + ".txt"));
    const double share = spec.kind == TextKind::kDoc ? kDocShare : kCodeShare;
    for (const std::string& text : split_documents(joined)) {
      if (unit_hash(text) < share) FATHOM_RETURN_IF_ERROR(body(text));
    }
  }
  return {};
}

Result<void> tokenizer_job(const Flags& flags) {
  FATHOM_ASSIGN_OR_RETURN(const std::string recipe_path, wanted(flags, "recipe"));
  FATHOM_ASSIGN_OR_RETURN(const std::string dir, wanted(flags, "dir"));
  FATHOM_ASSIGN_OR_RETURN(const std::string recipe_text, read_file(recipe_path));
  FATHOM_ASSIGN_OR_RETURN(const std::vector<SourceSpec> recipe, parse_recipe(recipe_text));
  BpeOptions options;
  options.patterns = small_model_patterns();
  options.head_tokens = small_model_head_tokens();
  options.tail_tokens = small_model_tail_tokens();
  FATHOM_ASSIGN_OR_RETURN(const int64_t vocab_size,
                          number_flag(flags, "vocab", options.vocab_size));
  if (vocab_size > 65'536) {
    return invalid("--vocab: wanted at most 65536, found " + std::to_string(vocab_size));
  }
  options.vocab_size = static_cast<int>(vocab_size);
  FATHOM_ASSIGN_OR_RETURN(BpeTrainer trainer, BpeTrainer::create(std::move(options)));
  int64_t bytes = 0;
  FATHOM_RETURN_IF_ERROR(for_each_sampled(recipe, dir, [&](const std::string& text) {
    bytes += static_cast<int64_t>(text.size());
    return trainer.add_text(text);
  }));
  const BpeModel model = trainer.train();
  const size_t size = 256 + model.merges.size() + model.options.head_tokens.size() +
                      model.options.tail_tokens.size();
  if (size != static_cast<size_t>(model.options.vocab_size)) {
    return invalid("tokenizer: sample: wanted text for a vocabulary of " +
                   std::to_string(model.options.vocab_size) + ", found text for " +
                   std::to_string(size));
  }
  FATHOM_RETURN_IF_ERROR(write_file_atomic(dir + "/tokenizer.json", bpe_json(model)));
  std::printf("{\"sample_bytes\": %lld, \"merges\": %zu, \"vocab\": %d}\n",
              static_cast<long long>(bytes), model.merges.size(), model.options.vocab_size);
  return {};
}

Result<void> shards_job(const Flags& flags) {
  FATHOM_ASSIGN_OR_RETURN(const std::string recipe_path, wanted(flags, "recipe"));
  FATHOM_ASSIGN_OR_RETURN(const std::string recipe_text, read_file(recipe_path));
  FATHOM_ASSIGN_OR_RETURN(const std::vector<SourceSpec> recipe, parse_recipe(recipe_text));
  ShardOptions options;
  FATHOM_ASSIGN_OR_RETURN(options.corpus_dir, wanted(flags, "dir"));
  FATHOM_ASSIGN_OR_RETURN(options.out_dir, wanted(flags, "out"));
  FATHOM_ASSIGN_OR_RETURN(options.doc_bytes, number_flag(flags, "doc-bytes", 0));
  FATHOM_ASSIGN_OR_RETURN(options.code_bytes, number_flag(flags, "code-bytes", 0));
  FATHOM_ASSIGN_OR_RETURN(options.recall_tokens,
                          number_flag(flags, "recall-tokens", options.recall_tokens));
  FATHOM_ASSIGN_OR_RETURN(options.dialogue_tokens,
                          number_flag(flags, "dialogue-tokens", options.dialogue_tokens));
  FATHOM_ASSIGN_OR_RETURN(const std::string index, build_shards(recipe, options));
  std::fputs(index.c_str(), stdout);
  return {};
}

}  // namespace

Result<void> run_data_job(const std::vector<std::string>& args) {
  if (args.empty()) return invalid("data: wanted corpus, tokenizer or shards, found nothing");
  Flags flags;
  for (size_t i = 1; i < args.size(); i += 2) {
    if (args[i].rfind("--", 0) != 0) return invalid("data: wanted --NAME VALUE, found " + args[i]);
    if (i + 1 == args.size()) return invalid(args[i] + ": wanted a value, found none");
    flags[args[i].substr(2)] = args[i + 1];
  }
  if (args[0] == "corpus") return corpus_job(flags);
  if (args[0] == "tokenizer") return tokenizer_job(flags);
  if (args[0] == "shards") return shards_job(flags);
  return invalid("data: wanted corpus, tokenizer or shards, found " + args[0]);
}

}  // namespace fathom::train
