#include "train/corpus/data_cli.h"

#include <cstdio>
#include <filesystem>
#include <functional>
#include <string_view>

#include "base/file.h"
#include "base/job_flags.h"
#include "train/corpus/bpe_trainer.h"
#include "train/corpus/data_corpus.h"
#include "train/corpus/data_shards.h"
#include "train/corpus/data_store.h"

namespace fathom::train {
namespace {

constexpr const char* kUsage =
    "usage: fathom train JOB --NAME VALUE ...\n"
    "  data corpus  --recipe FILE --dir DIR     text of the packages below DIR/pkg, which\n"
    "               tools/corpus_fetch.sh RECIPE DIR fetches; writes DIR/text and "
    "DIR/manifest.json\n"
    "  tokenizer    --recipe FILE --dir DIR [--vocab N]\n"
    "               a byte-level BPE vocabulary from that text: DIR/tokenizer.json\n"
    "  data shards  --recipe FILE --dir DIR --out DIR [--doc-bytes N] [--code-bytes N]\n"
    "               [--recall-tokens N] [--dialogue-tokens N]\n"
    "               token streams and index.json for `fathom train run`; bytes 0: all\n"
    "tools/corpus_build.sh does all of it with the shipped recipe, tools/corpus_recipe.txt.\n";

Error without_corpus(const std::string& path, const std::string& recipe, const std::string& dir) {
  return not_found(path + ": wanted what tools/corpus_fetch.sh fetches, found none; run " +
                   "tools/corpus_fetch.sh " + recipe + " " + dir);
}

Result<void> corpus_job(const JobFlags& flags) {
  const std::string recipe_path = flags.text("recipe");
  const std::string dir = flags.text("dir");
  FATHOM_ASSIGN_OR_RETURN(const std::string recipe_text, read_file(recipe_path));
  FATHOM_ASSIGN_OR_RETURN(const std::vector<SourceSpec> recipe, parse_recipe(recipe_text));
  const std::string packages_path = dir + "/packages.tsv";
  if (!std::filesystem::exists(packages_path)) {
    return without_corpus(packages_path, recipe_path, dir);
  }
  FATHOM_ASSIGN_OR_RETURN(const std::string table, read_file(packages_path));
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
    FATHOM_ASSIGN_OR_RETURN(const std::vector<std::string> texts, read_documents(dir, spec.name));
    const double share = spec.kind == TextKind::kDoc ? kDocShare : kCodeShare;
    for (const std::string& text : texts) {
      if (unit_hash(text) < share) FATHOM_RETURN_IF_ERROR(body(text));
    }
  }
  return {};
}

Result<void> tokenizer_job(const JobFlags& flags) {
  const std::string recipe_path = flags.text("recipe");
  const std::string dir = flags.text("dir");
  FATHOM_ASSIGN_OR_RETURN(const std::string recipe_text, read_file(recipe_path));
  FATHOM_ASSIGN_OR_RETURN(const std::vector<SourceSpec> recipe, parse_recipe(recipe_text));
  BpeOptions options;
  options.patterns = small_model_patterns();
  options.head_tokens = small_model_head_tokens();
  options.tail_tokens = small_model_tail_tokens();
  options.vocab_size = static_cast<int>(flags.count("vocab", options.vocab_size));
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

Result<void> shards_job(const JobFlags& flags) {
  const std::string recipe_path = flags.text("recipe");
  FATHOM_ASSIGN_OR_RETURN(const std::string recipe_text, read_file(recipe_path));
  FATHOM_ASSIGN_OR_RETURN(const std::vector<SourceSpec> recipe, parse_recipe(recipe_text));
  ShardOptions options;
  options.corpus_dir = flags.text("dir");
  options.out_dir = flags.text("out");
  options.doc_bytes = flags.count("doc-bytes", 0);
  options.code_bytes = flags.count("code-bytes", 0);
  options.recall_tokens = flags.count("recall-tokens", options.recall_tokens);
  options.dialogue_tokens = flags.count("dialogue-tokens", options.dialogue_tokens);
  FATHOM_ASSIGN_OR_RETURN(const std::string index, build_shards(recipe, options));
  std::fputs(index.c_str(), stdout);
  return {};
}

struct Job {
  const char* name;
  const char* command;  // for messages
  std::vector<FlagRule> flags;
  std::function<Result<void>(const JobFlags&)> work;
};

FlagRule path_flag(const char* name) { return {.name = name, .required = true}; }
FlagRule count_flag(const char* name, double high = 1e15) {
  return {.name = name, .kind = FlagKind::kCount, .high = high};
}

std::vector<Job> all_jobs() {
  const FlagRule recipe = path_flag("recipe");
  const FlagRule dir = path_flag("dir");
  return {
      {"corpus", "train data", {recipe, dir}, corpus_job},
      {"tokenizer", "train tokenizer", {recipe, dir, count_flag("vocab", 65536)}, tokenizer_job},
      {"shards",
       "train data",
       {recipe, dir, path_flag("out"), count_flag("doc-bytes"), count_flag("code-bytes"),
        count_flag("recall-tokens"), count_flag("dialogue-tokens")},
       shards_job}};
}

int wrong_usage(const std::string& command, const std::string& message) {
  std::fputs(usage_line(command, message).c_str(), stderr);
  return kWrongUsage;
}

}  // namespace

int run_data_job(const std::vector<std::string>& args) {
  const std::string name = args.empty() ? "nothing" : args.front();
  if (name == "--help" || name == "-h") return std::fputs(kUsage, stdout), 0;
  for (const Job& job : all_jobs()) {
    if (job.name != name) continue;
    const auto flags = JobFlags::read({args.begin() + 1, args.end()}, job.flags);
    const bool named = std::string_view(job.command).ends_with(name);
    if (!flags) {
      return wrong_usage(job.command, (named ? "" : name + ": ") + flags.error().message);
    }
    if (flags->has("help")) return std::fputs(kUsage, stdout), 0;
    const Result<void> done = job.work(*flags);
    if (done) return 0;
    std::fprintf(stderr, "fathom: train: %s: %s\n", name.c_str(), done.error().message.c_str());
    return 1;
  }
  return wrong_usage("train data", "wanted corpus, tokenizer or shards, found " + name);
}

}  // namespace fathom::train
