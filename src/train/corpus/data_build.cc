// build_shards: from texts to everything that a training run reads.

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>

#include "base/file.h"
#include "text/engram_map.h"
#include "train/corpus/data_shards.h"
#include "train/corpus/data_store.h"
#include "train/corpus/gzip.h"
#include "train/corpus/recall_task.h"
#include "train/corpus/synth_text_dialogue.h"

namespace fathom::train {
namespace {

namespace fs = std::filesystem;

constexpr int kRecallLengths[] = {512, 1024, 2048};
constexpr int64_t kFillerBytes = 12'000'000;
constexpr size_t kMaxDefinitions = 6'000;

// The set that a held-out source belongs to: the Python packages make one.
std::string held_out_set(const SourceSpec& spec) {
  return spec.name.rfind("py-", 0) == 0 ? "python-web" : spec.name;
}

class Builder {
 public:
  Builder(const std::vector<SourceSpec>& recipe, const ShardOptions& options, Tokenizer tokenizer)
      : recipe_(recipe), options_(options), tokenizer_(std::move(tokenizer)) {}

  // All of it, or nothing that was not there before.
  Result<std::string> run() {
    Result<std::string> index = write_all();
    if (!index) remove_written();
    return index;
  }

 private:
  Result<std::string> write_all() {
    is_new_ = fs::create_directories(options_.out_dir);
    has_new_held_ = fs::create_directories(options_.out_dir + "/held");
    FATHOM_RETURN_IF_ERROR(held_out());
    FATHOM_RETURN_IF_ERROR(texts(TextKind::kDoc, "doc", options_.doc_bytes));
    FATHOM_RETURN_IF_ERROR(texts(TextKind::kCode, "code", options_.code_bytes));
    FATHOM_RETURN_IF_ERROR(recall());
    FATHOM_RETURN_IF_ERROR(dialogues());
    FATHOM_RETURN_IF_ERROR(engram());
    const std::string index = index_json(tokenizer_.vocab_size(), done_);
    FATHOM_RETURN_IF_ERROR(write("index.json", index));
    return index;
  }

  Result<void> write(const std::string& name, std::string_view bytes) {
    const std::string path = options_.out_dir + "/" + name;
    written_.push_back(path);
    return write_file_atomic(path, bytes);
  }

  void remove_written() const {
    std::error_code failure;
    for (const std::string& path : written_) fs::remove(path, failure);
    if (has_new_held_) fs::remove(options_.out_dir + "/held", failure);
    if (is_new_) fs::remove(options_.out_dir, failure);
  }

  // Writes a shard; its tokens are kept for the index's sizes only.
  Result<void> finish(Shard shard) {
    const auto n_tokens = static_cast<double>(std::max<size_t>(1, shard.ids.size()));
    std::fprintf(stderr, "%s: %zu tokens, %.3f bytes a token\n", shard.name.c_str(),
                 shard.ids.size(), static_cast<double>(shard.bytes) / n_tokens);
    for (const char* end : {".u16", ".w8"}) {
      written_.push_back(options_.out_dir + "/" + shard.name + end);
    }
    FATHOM_RETURN_IF_ERROR(write_shard(options_.out_dir, shard));
    done_.push_back(std::move(shard));
    return {};
  }

  Result<void> held_out() {
    std::map<std::string, std::vector<std::string>> sets;
    for (const SourceSpec& spec : recipe_) {
      if (spec.split != Split::kHeldOut) continue;
      FATHOM_ASSIGN_OR_RETURN(const std::vector<std::string> texts,
                              read_documents(options_.corpus_dir, spec.name));
      std::vector<std::string>& set = sets[held_out_set(spec)];
      set.insert(set.end(), texts.begin(), texts.end());
      kinds_[held_out_set(spec)] = spec.kind == TextKind::kDoc ? "doc" : "code";
    }
    for (const auto& [name, texts] : sets) {
      const std::vector<std::string> taken =
          take_documents(tokenizer_, texts, options_.held_out_tokens);
      FATHOM_RETURN_IF_ERROR(write("held/" + name + ".txt.gz", gzipped(join_documents(taken))));
      Shard shard{"held_" + name, kinds_[name], Split::kHeldOut, 0, 0, {}, {}};
      append_documents(tokenizer_, taken, shard);
      FATHOM_RETURN_IF_ERROR(finish(std::move(shard)));
    }
    return {};
  }

  // One stream in the order of the recipe; a limit drops documents by hash, from every source
  // alike.
  Result<void> texts(TextKind kind, const char* name, int64_t limit) {
    int64_t all = 0;
    std::vector<std::string> kept;
    for (const SourceSpec& spec : recipe_) {
      if (spec.split != Split::kTrain || spec.kind != kind) continue;
      FATHOM_ASSIGN_OR_RETURN(const std::vector<std::string> texts,
                              read_documents(options_.corpus_dir, spec.name));
      for (const std::string& text : texts) {
        all += static_cast<int64_t>(text.size());
        kept.push_back(text);
      }
    }
    const double share = limit > 0 ? static_cast<double>(limit) / static_cast<double>(all) : 1.0;
    std::erase_if(kept, [&](const std::string& text) { return unit_hash(text) >= share; });
    if (kind == TextKind::kDoc) docs_ = kept;
    Shard shard{name, name, Split::kTrain, 0, 0, {}, {}};
    append_documents(tokenizer_, kept, shard);
    return finish(std::move(shard));
  }

  Result<void> recall() {
    std::vector<std::string> filler_texts;
    int64_t bytes = 0;
    for (const std::string& text : docs_) {
      if (unit_hash(text) > 0.2 || bytes > kFillerBytes) continue;
      filler_texts.push_back(text);
      bytes += static_cast<int64_t>(text.size());
    }
    FATHOM_ASSIGN_OR_RETURN(
        const Filler filler,
        Filler::make(tokenizer_, filler_texts, options_.corpus_dir + ": prose of the recipe"));
    for (int length : kRecallLengths) {
      // One token more than the context: inputs are the first, targets the last `length` of them.
      Shard shard{
          "recall_" + std::to_string(length), "recall", Split::kTrain, 0, length + 1, {}, {}};
      for (uint64_t i = 0; static_cast<int64_t>(shard.ids.size()) < options_.recall_tokens; ++i) {
        const uint64_t seed = (options_.seed << 40) + (static_cast<uint64_t>(length) << 24) + i;
        FATHOM_ASSIGN_OR_RETURN(const TokenRow row,
                                recall_row(tokenizer_, filler, length + 1, seed));
        append_row(row, shard);
      }
      FATHOM_RETURN_IF_ERROR(finish(std::move(shard)));
    }
    return {};
  }

  Result<void> dialogues() {
    std::vector<Definition> definitions;
    for (const std::string& text : docs_) {
      for (Definition& found : find_definitions(text)) definitions.push_back(std::move(found));
    }
    SynthRng rng(options_.seed);
    rng.shuffle(definitions);
    if (definitions.size() > kMaxDefinitions) definitions.resize(kMaxDefinitions);
    std::fprintf(stderr, "definitions: %zu\n", definitions.size());
    const DialogueGenerator generator(std::move(definitions), RecallSplit::kTrain);
    Shard shard{"dialogue", "dialogue", Split::kTrain, 0, 0, {}, {}};
    for (uint64_t i = 0; static_cast<int64_t>(shard.ids.size()) < options_.dialogue_tokens; ++i) {
      append_row(encode_dialogue(tokenizer_, generator.dialogue((options_.seed << 40) + i)), shard);
    }
    return finish(std::move(shard));
  }

  void append_row(const TokenRow& row, Shard& shard) const {
    for (TokenId id : row.ids) {
      shard.ids.push_back(static_cast<uint16_t>(id));
      shard.bytes += static_cast<int64_t>(tokenizer_.token_bytes(id).size());
    }
    shard.weights.insert(shard.weights.end(), row.weights.begin(), row.weights.end());
  }

  Result<void> engram() {
    const EngramMap map = build_engram_map(tokenizer_);
    std::fprintf(stderr, "engram map: %d keys\n", map.n_keys);
    return write("engram_map.i32", {reinterpret_cast<const char*>(map.compressed.data()),
                                    map.compressed.size() * sizeof(int32_t)});
  }

  const std::vector<SourceSpec>& recipe_;
  const ShardOptions& options_;
  Tokenizer tokenizer_;
  std::vector<std::string> docs_;
  std::map<std::string, std::string> kinds_;
  std::vector<Shard> done_;
  std::vector<std::string> written_;
  bool is_new_ = false;
  bool has_new_held_ = false;
};

}  // namespace

Result<std::string> build_shards(const std::vector<SourceSpec>& recipe,
                                 const ShardOptions& options) {
  const std::string path = options.corpus_dir + "/tokenizer.json";
  if (!fs::exists(path)) {
    return not_found(path + ": wanted what `fathom train tokenizer` writes, found none; run it " +
                     "with --dir " + options.corpus_dir);
  }
  FATHOM_ASSIGN_OR_RETURN(Tokenizer tokenizer, Tokenizer::load(path));
  return Builder(recipe, options, std::move(tokenizer)).run();
}

Result<std::vector<std::string>> read_held_out(const std::string& path) {
  FATHOM_ASSIGN_OR_RETURN(const std::string joined, read_maybe_gzip(path));
  return split_documents(joined);
}

}  // namespace fathom::train
