#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>
#include <utility>

#include "apps/common.h"
#include "apps/numbers.h"
#include "apps/progress.h"
#include "apps/usage.h"
#include "apps/verb.h"
#include "apps/work_estimate.h"
#include "engine/generate.h"
#include "eval/selection.h"
#include "eval/text_score.h"
#include "train/corpus/data_shards.h"
#include "train/corpus/recall_task.h"

namespace fathom {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

struct Row {
  std::string name;
  Estimate estimate;
  std::string unit;
  std::string conditions;
};

struct HeldOutSet {
  std::string name;
  std::string file;
  std::vector<std::string> documents;
};

// Of the shipped model and its held-out texts.
constexpr const char* kTime =
    "With the defaults and the shipped model this takes 20 minutes or more on 2 cores; the time "
    "goes\n"
    "with tokens (text: sets x --tokens; index: three times that; needle: --needle-cases x\n"
    "--needle-context). About a minute: --suite text,needle --tokens 4096 --needle-cases 16.";

class EvalVerb final : public Verb {
 public:
  const char* name() const override { return "eval"; }
  const char* help() const override { return "Quality tables, from the packed engine"; }

  void add_options(CLI::App& app) override {
    app.add_option("--suite", suites_, "Suites: text, needle, index")
        ->delimiter(',')
        ->check(CLI::IsMember({"text", "needle", "index"}))
        ->capture_default_str();
    app.add_option("--cases", cases_,
                   "Folder of held-out texts, *.txt.gz (default: heldout "
                   "beside the model folder)");
    app.add_option("--sets", sets_, "Held-out sets, by name (default: all)")->delimiter(',');
    text_options_ = {app.add_option("--tokens", tokens_, "Tokens of each text set at most")
                         ->transform(size_number(2, int64_t{1} << 40))
                         ->capture_default_str(),
                     app.add_option("--window", window_, "Tokens of a window of text")
                         ->check(whole_number(2, int64_t{1} << 20))
                         ->capture_default_str()};
    needle_options_ = {
        app.add_option("--needle-context", needle_context_, "Tokens of a retrieval prompt")
            ->check(whole_number(64, int64_t{1} << 20))
            ->capture_default_str(),
        app.add_option("--needle-facts", needle_facts_, "Facts in a prompt, 1: passkey")
            ->check(whole_number(1, 64))
            ->capture_default_str(),
        app.add_option("--needle-cases", needle_cases_, "Retrieval prompts")
            ->check(whole_number(1, int64_t{1} << 20))
            ->capture_default_str(),
        app.add_option("--seed", seed_, "Of the retrieval prompts")
            ->check(any_seed())
            ->capture_default_str()};
    flags_.add_place(app);
    flags_.add_index_scores(app);
    output_.add_to(app);
    app.footer(kTime);
  }

  std::string misuse(const TypedOptions& typed) const override {
    if (const std::string twice = repeated_word(suites_); !twice.empty()) {
      return "--suite: wanted each suite once, found " + twice + " twice";
    }
    if (const std::string twice = repeated_word(sets_); !twice.empty()) {
      return "--sets: wanted each set once, found " + shown_value(twice) + " twice";
    }
    const CLI::Option* idle = first_typed(typed, needle_options_);
    if (idle != nullptr && !wants("needle")) {
      return idle->get_name() + ": wanted it with --suite needle, found it without";
    }
    idle = first_typed(typed, text_options_);
    if (idle == nullptr || wants("text") || wants("index")) return {};
    return idle->get_name() + ": wanted it with --suite text or index, found it without either";
  }

  int run() override {
    const Result<void> done = run_suites();
    if (!done) return fail(done.error());
    print();
    return 0;
  }

 private:
  Result<void> run_suites() {
    flags_.mode = "exact";
    FATHOM_ASSIGN_OR_RETURN(path_, model_path(flags_.model));
    FATHOM_RETURN_IF_ERROR(read_sets());
    if (wants("needle")) FATHOM_RETURN_IF_ERROR(prepare_needle());
    plan_work();
    for (const std::string& suite : suites_) {
      if (suite == "text") FATHOM_RETURN_IF_ERROR(run_text());
      if (suite == "needle") FATHOM_RETURN_IF_ERROR(run_needle());
      if (suite == "index") FATHOM_RETURN_IF_ERROR(run_index());
    }
    return {};
  }

  bool wants(const char* suite) const {
    return std::find(suites_.begin(), suites_.end(), suite) != suites_.end();
  }

  // A token has one byte at least.
  void plan_work() {
    int64_t n_text = 0;
    longest_ = 2;
    for (const HeldOutSet& set : held_out_) {
      int64_t bytes = 0;
      for (const std::string& document : set.documents) {
        bytes += static_cast<int64_t>(document.size()) + 1;
      }
      n_text += std::min(bytes, tokens_);
      longest_ = std::max(longest_, std::min(bytes, tokens_));
    }
    if (wants("text")) work_.plan(n_text);
    if (wants("index")) work_.plan(3 * n_text);
    if (wants("needle")) work_.plan(needle_cases_ * needle_context_);
    if (output_.quiet) work_.disable();
  }

  // Beside the model, however its folder is spelled.
  fs::path held_out_folder() const {
    if (!cases_.empty()) return cases_;
    std::error_code code;
    fs::path model = fs::absolute(path_, code).lexically_normal();
    if (!model.has_filename()) model = model.parent_path();  // ends with a slash
    return model.parent_path() / "heldout";
  }

  Result<void> read_sets() {
    const fs::path folder = held_out_folder();
    std::error_code code;
    std::map<std::string, fs::path> files;  // by name of the set
    for (const auto& entry : fs::directory_iterator(folder, code)) {
      const fs::path& file = entry.path();
      if (file.extension() == ".gz" && entry.is_regular_file(code)) {
        files[file.stem().stem().string()] = file;
      }
    }
    if (files.empty()) {
      return not_found(folder.string() + ": wanted held-out texts (*.txt.gz), found none");
    }
    for (const std::string& name : sets_) {
      if (!files.contains(name)) return not_found(missing_set(folder, files, name));
    }
    for (const auto& [name, file] : files) {
      const bool wanted =
          sets_.empty() || std::find(sets_.begin(), sets_.end(), name) != sets_.end();
      if (!wanted) continue;
      FATHOM_ASSIGN_OR_RETURN(auto documents, train::read_held_out(file.string()));
      held_out_.push_back({.name = name, .file = file.string(), .documents = std::move(documents)});
    }
    return {};
  }

  static std::string missing_set(const fs::path& folder,
                                 const std::map<std::string, fs::path>& files,
                                 const std::string& name) {
    std::string known;
    for (const auto& [set, file] : files) known += (known.empty() ? "" : ", ") + set;
    return folder.string() + ": --sets: wanted sets of " + known + ", found " + name;
  }

  // No window is longer than its text.
  Result<Session> open_for_text() {
    const int64_t rows = std::min(window_, longest_);
    FATHOM_ASSIGN_OR_RETURN(Session session, open(rows, rows));
    if (!output_.quiet) note_positions("--window", rows, *session.loaded.model);
    return session;
  }

  Result<Session> open(int64_t context, int64_t logit_rows) {
    ModelFlags flags = flags_;
    flags.context = context;
    return open_session(flags, output_, true, {.max_rows = context, .max_logit_rows = logit_rows});
  }

  // The documents of a set as one stream, an end token behind each, cut to --tokens.
  Result<std::vector<int32_t>> stream_of(const HeldOutSet& set, const Session& session) const {
    std::vector<int32_t> ids;
    for (const std::string& document : set.documents) {
      FATHOM_ASSIGN_OR_RETURN(const std::vector<int32_t> encoded,
                              session.loaded.tokenizer->encode(document, AddedTokens::kIgnore));
      ids.insert(ids.end(), encoded.begin(), encoded.end());
      ids.push_back(static_cast<int32_t>(session.loaded.model->config().eos_token_id));
      if (static_cast<int64_t>(ids.size()) > tokens_) break;
    }
    ids.resize(std::min(ids.size(), static_cast<size_t>(tokens_) + 1));
    return ids;
  }

  Result<Estimate> score(Session& session, const HeldOutSet& set, const std::string& what) {
    ProgressLine line(output_.show_progress(), what + " " + set.name, "tokens");
    FATHOM_ASSIGN_OR_RETURN(const std::vector<int32_t> stream, stream_of(set, session));
    work_.advance(0);
    int64_t before = 0;
    const auto progress = [&](int64_t done, int64_t all) {
      line.clear();
      work_.advance(done - std::exchange(before, done));
      line.update(done, all);
    };
    auto estimate = bits_per_byte(*session.runner, *session.loaded.tokenizer, stream,
                                  {.window_tokens = window_, .progress = progress});
    if (!estimate) return Error{estimate.error().code, set.file + ": " + estimate.error().message};
    return estimate;
  }

  std::string text_conditions() const {
    return "windows of " + std::to_string(window_) + " tokens, at most " + std::to_string(tokens_) +
           " tokens, packed FP4/FP8 weights and caches";
  }

  // Documentation sets are named so.
  static bool is_documentation(const std::string& set) { return set.ends_with("-doc"); }

  void add_mean(const std::string& name, const std::vector<Estimate>& sets) {
    if (sets.size() < 2) return;
    rows_.push_back(
        {.name = name,
         .estimate = mean_estimate(sets),
         .unit = "bits_per_byte",
         .conditions = "mean of " + std::to_string(sets.size()) + " sets, " + text_conditions()});
  }

  Result<void> run_text() {
    FATHOM_ASSIGN_OR_RETURN(Session session, open_for_text());
    std::vector<Estimate> documentation;
    std::vector<Estimate> code;
    for (const HeldOutSet& set : held_out_) {
      FATHOM_ASSIGN_OR_RETURN(const Estimate estimate, score(session, set, "text"));
      rows_.push_back({.name = "text/" + set.name,
                       .estimate = estimate,
                       .unit = "bits_per_byte",
                       .conditions = text_conditions()});
      (is_documentation(set.name) ? documentation : code).push_back(estimate);
    }
    add_mean("text/documentation", documentation);
    add_mean("text/code", code);
    return {};
  }

  Result<void> run_index() {
    FATHOM_ASSIGN_OR_RETURN(Session session, open_for_text());
    const std::pair<Selection, const char*> kinds[] = {{Selection::kIndexer, "indexer"},
                                                       {Selection::kOracle, "oracle"},
                                                       {Selection::kRecent, "recent"}};
    std::vector<Estimate> by_kind[std::size(kinds)];
    for (const HeldOutSet& set : held_out_) {
      for (size_t i = 0; i < std::size(kinds); ++i) {
        const auto& [selection, kind] = kinds[i];
        SelectionProbe probe(*session.loaded.model, *session.loaded.checkpoint, selection);
        session.ops->set_probe(selection == Selection::kIndexer ? nullptr : &probe);
        Result<Estimate> estimate = score(session, set, kind);
        session.ops->set_probe(nullptr);
        if (!estimate) return estimate.error();
        rows_.push_back(
            {.name = "index/" + set.name + "/" + kind,
             .estimate = *estimate,
             .unit = "bits_per_byte",
             .conditions = text_conditions() + ", selection of " +
                           std::to_string(session.loaded.model->config().text_config.index_topk) +
                           " entries by " + kind});
        by_kind[i].push_back(*estimate);
      }
    }
    for (size_t i = 0; i < std::size(kinds); ++i) {
      add_mean(std::string("index/mean/") + kinds[i].second, by_kind[i]);
    }
    return {};
  }

  // Filler comes from the documentation of postgresql, else from the first set.
  const HeldOutSet& filler_set() const {
    for (const HeldOutSet& set : held_out_) {
      if (set.name.find("postgresql") != std::string::npos) return set;
    }
    return held_out_.front();
  }

  train::NeedleOptions needle_options(int64_t at) const {
    return {.context_tokens = static_cast<int>(needle_context_),
            .n_facts = static_cast<int>(needle_facts_),
            .seed = seed_ + static_cast<uint64_t>(at)};
  }

  // What the texts cannot give is known before the model is read and other suites are run.
  Result<void> prepare_needle() {
    FATHOM_ASSIGN_OR_RETURN(const Tokenizer tokenizer, Tokenizer::load(path_ + "/tokenizer.json"));
    FATHOM_ASSIGN_OR_RETURN(
        train::Filler filler,
        train::Filler::make(tokenizer, filler_set().documents, filler_set().file));
    FATHOM_RETURN_IF_ERROR(train::needle_case(tokenizer, filler, needle_options(0)));
    filler_.emplace(std::move(filler));
    return {};
  }

  Result<void> run_needle() {
    FATHOM_ASSIGN_OR_RETURN(Session session, open(needle_context_ + 8, 1));
    if (!output_.quiet) note_positions("--needle-context", needle_context_, *session.loaded.model);
    const Tokenizer& tokenizer = *session.loaded.tokenizer;
    ProgressLine line(output_.show_progress(), "needle", "prompts");
    work_.advance(0);
    int64_t n_right = 0;
    for (int64_t i = 0; i < needle_cases_; ++i) {
      FATHOM_ASSIGN_OR_RETURN(const train::NeedleCase needle,
                              train::needle_case(tokenizer, *filler_, needle_options(i)));
      FATHOM_ASSIGN_OR_RETURN(Sequence sequence, session.runner->open());
      FATHOM_RETURN_IF_ERROR(session.runner->append(sequence, needle.prompt));
      FATHOM_ASSIGN_OR_RETURN(const Generated answer,
                              generate(*session.runner, sequence, &tokenizer,
                                       {.max_tokens = static_cast<int64_t>(needle.answer.size()),
                                        .sampling = {.temperature = 0}},
                                       {}));
      n_right += answer.ids == needle.answer;
      session.runner->close(sequence);
      line.clear();
      work_.advance(needle_context_);
      line.update(i + 1, needle_cases_);
    }
    rows_.push_back({.name = "needle/" + std::to_string(needle_context_),
                     .estimate = share_estimate(n_right, needle_cases_),
                     .unit = "share",
                     .conditions = std::to_string(needle_facts_) +
                                   " facts, five digits, greedy, filler " + filler_set().name});
    return {};
  }

  void print() const {
    json::array rows;
    for (const Row& row : rows_) {
      rows.push_back({{"name", row.name},
                      {"value", row.estimate.value},
                      {"low", row.estimate.low},
                      {"high", row.estimate.high},
                      {"n", row.estimate.n},
                      {"unit", row.unit},
                      {"conditions", row.conditions}});
    }
    if (output_.json) return print_json(json::object{{"rows", rows}});
    std::printf("%-32s %8s  %-18s %5s  %s\n", "name", "value", "95 % interval", "n", "unit");
    for (const Row& row : rows_) {
      const Estimate& estimate = row.estimate;
      const std::string interval =
          "[" + bound_text(estimate.low) + ", " + bound_text(estimate.high) + "]";
      std::printf("%-32s %8.4f  %-18s %5lld  %s\n", row.name.c_str(), estimate.value,
                  interval.c_str(), static_cast<long long>(estimate.n), row.unit.c_str());
    }
  }

  // One window has no interval.
  static std::string bound_text(double bound) {
    if (!std::isfinite(bound)) return "unknown";
    char text[32];
    std::snprintf(text, sizeof(text), "%.4f", bound);
    return text;
  }

  ModelFlags flags_;
  OutputFlags output_;
  std::vector<std::string> suites_ = {"text", "needle", "index"};
  std::string cases_;
  std::vector<std::string> sets_;
  int64_t tokens_ = 32768;
  int64_t window_ = 2048;
  int64_t needle_context_ = 512;
  int64_t needle_facts_ = 1;
  int64_t needle_cases_ = 256;
  uint64_t seed_ = 1;
  std::string path_;
  std::vector<HeldOutSet> held_out_;
  int64_t longest_ = 0;                  // tokens of a text that is scored, at most
  std::optional<train::Filler> filler_;  // of the needle suite
  std::vector<Row> rows_;
  std::vector<const CLI::Option*> text_options_;
  std::vector<const CLI::Option*> needle_options_;
  WorkEstimate work_{"eval", "tokens",
                     "--suite, --sets, --tokens and --needle-cases make it shorter"};
};

}  // namespace

std::unique_ptr<Verb> make_eval() { return std::make_unique<EvalVerb>(); }

}  // namespace fathom
