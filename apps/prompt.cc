#include <CLI/CLI.hpp>
#include <iostream>

#include "apps/chat_prompt.h"
#include "apps/common.h"
#include "apps/input.h"
#include "apps/verb.h"
#include "model/config.h"
#include "text/json_output.h"
#include "text/markers.h"
#include "text/output_parser.h"
#include "text/strict_output.h"

namespace fathom {
namespace {

namespace json = boost::json;

constexpr uint64_t kMaxInputBytes = uint64_t{1} << 28;

class PromptVerb final : public Verb {
 public:
  const char* name() const override { return "prompt"; }
  const char* help() const override { return "Render a chat request, or read a model's output"; }

  void add_options(CLI::App& app) override {
    source_ = app.add_option("FILE,-f,--file", file_,
                             "An OpenAI-style JSON request (default, and -: standard input)")
                  ->type_name("FILE");
    CLI::Option* model =
        app.add_option("-m,--model", model_, "Model folder (default: the model in models/)");
    CLI::Option* parse =
        app.add_flag("--parse", parse_,
                     "Read model output, with or without its end token; print content, "
                     "reasoning and tool calls")
            ->excludes(model);
    app.add_flag("--no-think", no_think_, "With --parse: the output has no reasoning")
        ->needs(parse);
    app.add_flag("--tools", tools_, "With --parse: tools were offered")->needs(parse);
    app.add_flag("--json", json_, "Print one JSON object");
  }

  int run() override {
    const Result<void> done = parse_ ? read_output() : render();
    return done ? 0 : fail(done.error());
  }

 private:
  Result<std::string> input() const {
    return source_->count() == 0 ? read_standard_input(kMaxInputBytes)
                                 : read_text(file_, kMaxInputBytes);
  }

  Result<void> render() {
    FATHOM_ASSIGN_OR_RETURN(const std::string path, model_path(model_));
    FATHOM_ASSIGN_OR_RETURN(const std::string body, input());
    FATHOM_ASSIGN_OR_RETURN(const ConfigFile config, read_config(path + "/config.json"));
    FATHOM_ASSIGN_OR_RETURN(const Tokenizer tokenizer, Tokenizer::load(path + "/tokenizer.json"));
    FATHOM_ASSIGN_OR_RETURN(const ChatTemplate chat,
                            ChatTemplate::load(path, config.config.model_type));
    const Result<ChatRequest> request = parse_chat_request(body);
    if (!request) {
      return invalid((source_->count() == 0 ? "standard input" : file_) + ": " +
                     request.error().message);
    }
    FATHOM_ASSIGN_OR_RETURN(const RenderedPrompt prompt, chat.render(*request));
    if (json_) {
      FATHOM_ASSIGN_OR_RETURN(const std::vector<TokenId> ids,
                              tokenizer.encode(prompt.text.text, prompt.text.markers));
      print_json(json::object{{"prompt", prompt.text.text}, {"ids", json::value_from(ids)}});
    } else {
      std::cout << prompt.text.text << "\n" << std::flush;
    }
    return {};
  }

  Result<void> read_output() {
    FATHOM_ASSIGN_OR_RETURN(std::string text, input());
    // No verb shows the end token, so that most texts lack it.
    const std::string end(kEosText);
    if (text.ends_with(end + "\n")) text.pop_back();
    if (text.ends_with(end)) text.resize(text.size() - end.size());
    const OutputStart start = no_think_ ? OutputStart::kContent : OutputStart::kReasoning;
    const ParsedOutput output = parse_output(text, {.start = start, .tools = tools_});
    json::array calls;
    for (const ParsedCall& call : output.tool_calls) {
      calls.push_back({{"name", call.name}, {"arguments", call.arguments}});
    }
    const json::object result = {
        {"content", output.content},
        {"reasoning", output.reasoning ? json::value(*output.reasoning) : json::value()},
        {"tool_calls", calls},
        {"error", strict_error(text + end)}};
    if (json_) return print_json(result), Result<void>();
    if (output.reasoning) std::cout << "reasoning: " << *output.reasoning << "\n";
    std::cout << "content: " << output.content << "\n";
    for (const json::value& call : calls) std::cout << "call: " << json_output(call) << "\n";
    if (result.at("error").is_string()) {
      std::cout << "error: " << std::string_view(result.at("error").get_string()) << "\n";
    }
    std::cout << std::flush;
    return {};
  }

  // What the strict grammar of a whole message has against the text; null: nothing.
  json::value strict_error(const std::string& text) const {
    const auto strict = parse_strict_output(text, !no_think_);
    const auto* fault = std::get_if<StrictFault>(&strict);
    return fault == nullptr ? json::value() : json::value(strict_fault_name(*fault));
  }

  std::string file_;
  const CLI::Option* source_ = nullptr;
  std::string model_;
  bool parse_ = false;
  bool no_think_ = false;
  bool tools_ = false;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Verb> make_prompt() { return std::make_unique<PromptVerb>(); }

}  // namespace fathom
