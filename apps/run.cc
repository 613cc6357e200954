#include <unistd.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <utility>

#include "apps/chat_prompt.h"
#include "apps/common.h"
#include "apps/form_flags.h"
#include "apps/generation_flags.h"
#include "apps/input.h"
#include "apps/numbers.h"
#include "apps/progress.h"
#include "apps/usage.h"
#include "apps/verb.h"
#include "base/clock.h"
#include "text/output_parser.h"

namespace fathom {
namespace {

constexpr uint64_t kMaxPromptBytes = uint64_t{1} << 28;

class RunVerb final : public Verb {
 public:
  RunVerb() { generation_.values.sampling.temperature = 0; }

  const char* name() const override { return "run"; }
  const char* help() const override { return "Complete a prompt"; }

  void add_options(CLI::App& app) override {
    CLI::Option* text = app.add_option("-p,--prompt", text_, "Prompt text");
    CLI::Option* file =
        app.add_option("-f,--file", file_,
                       "Read the prompt from a file or pipe (default, and -: standard input)")
            ->type_name("FILE");
    file->excludes(text);
    ids_option_ = app.add_option("--ids", id_list_, "Token ids, with commas between")
                      ->check(list_of_ids())
                      ->excludes(text)
                      ->excludes(file);
    text_option_ = text;
    file_option_ = file;
    CLI::Option* chat =
        app.add_flag("--chat", chat_, "Apply the chat template: the prompt is a user's message")
            ->excludes(ids_option_);
    app.add_option("--effort", effort_, "Reasoning effort with --chat; 0: no reasoning")
        ->check(whole_number(0, 100))
        ->needs(chat)
        ->capture_default_str();
    form_.add_to(app);
    generation_.add_to(app);
    generation_.stop_option->excludes(ids_option_);  // text is found in text
    flags_.add_to(app);
    output_.add_to(app);
  }

  std::string hint(const TypedOptions& typed) const override {
    return output_.quiet ? std::string() : generation_.hint(typed);
  }

  std::string misuse(const TypedOptions& typed) const override {
    if (first_typed(typed, {flags_.restore_option}) == nullptr) return {};
    return "--restore: wanted it with chat or serve, whose conversations go back, found it with "
           "run, whose prompt does not";
  }

  int run() override {
    const Result<void> done = complete();
    return done ? 0 : fail(done.error());
  }

 private:
  bool has_ids() const { return ids_option_->count() > 0; }

  // An empty text is a prompt too.
  Result<std::string> input() const {
    if (has_ids() || text_option_->count() > 0) return text_;
    if (file_option_->count() > 0) return read_text(file_, kMaxPromptBytes);
    if (::isatty(0) != 0 && !output_.quiet) {
      note("reads the prompt from the terminal; ctrl-D on an empty line ends it");
    }
    return read_standard_input(kMaxPromptBytes);
  }

  Result<void> complete() {
    FATHOM_ASSIGN_OR_RETURN(const std::string text, input());
    FATHOM_ASSIGN_OR_RETURN(const std::optional<Grammar> grammar,
                            form_.grammar({.thinking = chat_ && effort_ > 0}));
    FATHOM_ASSIGN_OR_RETURN(Session session,
                            open_session(flags_, output_, !has_ids() || grammar.has_value(), {}));
    const Tokenizer* tokenizer = session.loaded.tokenizer ? &*session.loaded.tokenizer : nullptr;
    FATHOM_ASSIGN_OR_RETURN(Sequence sequence, session.runner->open());
    FATHOM_ASSIGN_OR_RETURN(const std::vector<int32_t> prompt, prompt_ids(session, text));
    FATHOM_RETURN_IF_ERROR(session.runner->append(sequence, prompt));

    OutputParser parser(chat_ ? output_settings(chat_request(text)) : OutputSettings{});
    ProgressLine progress(output_.show_progress(), "prefill", "tokens");
    const GenerateEvents events = {
        .seconds = steady_seconds,
        .prefill = [&](int64_t done, int64_t all) { return progress.update(done, all), true; },
        .text =
            [&](std::string_view piece) {
              progress.clear();
              if (chat_) {
                show(parser.feed(piece));
              } else if (!output_.json) {
                std::cout << piece << std::flush;
              }
              return true;
            }};
    GenerateOptions options = generation_.options(session.loaded.model->config());
    std::optional<TokenTrie> tokens;
    std::optional<TokenMatcher> matcher;
    if (grammar) {
      tokens.emplace(*tokenizer);
      options.form = &matcher.emplace(*grammar, *tokens);
    }
    FATHOM_ASSIGN_OR_RETURN(const Generated result,
                            generate(*session.runner, sequence, tokenizer, options, events));
    progress.clear();
    if (chat_) show(parser.finish());
    end_reasoning();
    print(result, tokenizer != nullptr);
    // A limit that was named is what was asked for.
    const bool limit_named = generation_.limit_option->count() > 0;
    const std::string cut = generation_.cut_note(result, flags_.context);
    const bool at_limit = static_cast<int64_t>(result.ids.size()) >= generation_.values.max_tokens;
    if (!cut.empty() && !output_.quiet && !(limit_named && at_limit)) note(cut);
    return {};
  }

  // With the chat template the reasoning goes to standard error, the answer to standard output.
  void show(const std::vector<OutputDelta>& deltas) {
    accumulate(&parsed_, deltas);
    for (const OutputDelta& delta : deltas) {
      const bool reasoning = delta.kind == OutputDelta::Kind::kReasoning;
      if (!reasoning) end_reasoning();
      if (output_.json || (reasoning && output_.quiet)) continue;
      (reasoning ? std::cerr : std::cout) << delta.text << std::flush;
      in_reasoning_ = reasoning;
    }
  }

  // What comes behind it, on whichever stream, begins a line.
  void end_reasoning() {
    if (std::exchange(in_reasoning_, false)) std::cerr << "\n" << std::flush;
  }

  ChatRequest chat_request(const std::string& text) const {
    ChatRequest request;
    request.messages.push_back(user_message(text));
    request.thinking = effort_ > 0;
    if (effort_ > 0) request.effort = effort_;
    return request;
  }

  Result<std::vector<int32_t>> prompt_ids(const Session& session, const std::string& text) const {
    if (has_ids()) return parse_ids(id_list_);
    if (chat_) {
      return chat_ids(session.loaded, chat_request(text));
    }
    return raw_prompt_ids(session.loaded, text);
  }

  void print(const Generated& result, bool has_text) const {
    if (output_.json) return print_json(to_json(result));
    if (has_text) {
      std::cout << "\n" << std::flush;
      return;
    }
    for (size_t i = 0; i < result.ids.size(); ++i) {
      std::cout << (i == 0 ? "" : ",") << result.ids[i];
    }
    std::cout << "\n" << std::flush;
  }

  boost::json::object to_json(const Generated& result) const {
    const auto rate = [](int64_t n, double seconds) -> boost::json::value {
      if (n == 0 || seconds <= 0) return nullptr;
      return static_cast<double>(n) / seconds;
    };
    const int64_t n_prefill = result.prompt_tokens - result.cached_tokens + result.replayed_tokens;
    return {{"text", chat_ ? parsed_.content : result.text},
            {"reasoning", chat_ ? boost::json::value(parsed_.reasoning.value_or("")) : nullptr},
            {"ids", boost::json::value_from(result.ids)},
            {"finish_reason", stop_reason_name(result.stop_reason)},
            {"prompt_tokens", result.prompt_tokens},
            {"completion_tokens", static_cast<int64_t>(result.ids.size())},
            {"cached_tokens", result.cached_tokens},
            {"replayed_tokens", result.replayed_tokens},
            {"restore", result.replayed_tokens > 0 ? flags_.restore.c_str() : "none"},
            {"prefill_tokens_per_s", rate(n_prefill, result.prefill_seconds)},
            {"decode_tokens_per_s", rate(result.decode_steps, result.decode_seconds)}};
  }

  ModelFlags flags_;
  OutputFlags output_;
  GenerationFlags generation_;
  FormFlags form_;
  std::string text_;
  std::string file_;
  std::string id_list_;
  const CLI::Option* text_option_ = nullptr;
  const CLI::Option* file_option_ = nullptr;
  CLI::Option* ids_option_ = nullptr;
  bool chat_ = false;
  ParsedOutput parsed_;  // with --chat
  bool in_reasoning_ = false;
  int effort_ = kEffortHigh;
};

}  // namespace

std::unique_ptr<Verb> make_run() { return std::make_unique<RunVerb>(); }

}  // namespace fathom
