#include <CLI/CLI.hpp>
#include <iostream>

#include "apps/common.h"
#include "apps/input.h"
#include "apps/verb.h"

namespace fathom {
namespace {

namespace json = boost::json;

constexpr uint64_t kMaxInputBytes = uint64_t{1} << 30;

Result<std::vector<TokenId>> ids_of(const json::value& value) {
  boost::system::error_code code;
  if (!value.is_array()) return invalid("ids: wanted an array of integers, found another value");
  std::vector<TokenId> ids;
  for (const json::value& entry : value.get_array()) {
    const auto id = entry.is_number() ? entry.to_number<int32_t>(code) : 0;
    if (!entry.is_number() || code) return invalid("ids: wanted integers, found another value");
    ids.push_back(id);
  }
  return ids;
}

class TokenizeVerb final : public Verb {
 public:
  const char* name() const override { return "tokenize"; }
  const char* help() const override { return "Text to ids, or ids to text; no automatic BOS"; }

  void add_options(CLI::App& app) override {
    app.add_option("-m,--model", model_, "Model folder (default: the model in models/)");
    app.add_option("-p,--prompt", text_, "Text, or ids separated by commas with --decode");
    app.add_option("-f,--file", file_, "Read the text from a file (default: standard input)");
    app.add_flag("--decode", decode_, "Ids to text");
    app.add_flag("--plain", plain_, "Leave added tokens unmatched");
    app.add_flag("--json", json_, "Print one JSON object");
    app.add_flag("--jsonl", jsonl_,
                 "A JSON line with `text` or `ids` in, the same line with the other added out");
  }

  int run() override {
    const Result<void> done = jsonl_ ? run_lines() : run_one();
    return done ? 0 : fail(done.error());
  }

 private:
  Result<void> load() {
    FATHOM_ASSIGN_OR_RETURN(const std::string path, model_path(model_));
    FATHOM_ASSIGN_OR_RETURN(Tokenizer tokenizer, Tokenizer::load(path + "/tokenizer.json"));
    tokenizer_.emplace(std::move(tokenizer));
    return {};
  }

  Result<std::string> input() const {
    if (!text_.empty()) return text_;
    return read_input(file_, kMaxInputBytes);
  }

  Result<std::vector<TokenId>> encode(std::string_view text) const {
    return tokenizer_->encode(text, plain_ ? AddedTokens::kIgnore : AddedTokens::kMatch);
  }

  Result<void> run_one() {
    FATHOM_RETURN_IF_ERROR(load());
    FATHOM_ASSIGN_OR_RETURN(const std::string text, input());
    json::object result;
    if (decode_) {
      FATHOM_ASSIGN_OR_RETURN(const std::vector<TokenId> ids, parse_list(text));
      FATHOM_ASSIGN_OR_RETURN(const std::string decoded, tokenizer_->decode(ids));
      result = {{"ids", json::value_from(ids)}, {"text", decoded}};
      if (!json_) std::cout << decoded;
    } else {
      FATHOM_ASSIGN_OR_RETURN(const std::vector<TokenId> ids, encode(text));
      result = {{"ids", json::value_from(ids)}, {"text", text}};
      for (size_t i = 0; !json_ && i < ids.size(); ++i) std::cout << (i == 0 ? "" : ",") << ids[i];
    }
    if (json_) {
      print_json(result);
    } else {
      std::cout << "\n" << std::flush;
    }
    return {};
  }

  static Result<std::vector<TokenId>> parse_list(const std::string& text) {
    boost::system::error_code code;
    const json::value value = json::parse("[" + text + "]", code);
    if (code) return invalid("ids: wanted integers separated by commas, found " + code.message());
    return ids_of(value);
  }

  Result<void> run_lines() {
    FATHOM_RETURN_IF_ERROR(load());
    std::string line;
    for (int64_t number = 1; std::getline(std::cin, line); ++number) {
      if (line.empty()) continue;
      Result<void> done = run_line(line);
      if (!done) return invalid("line " + std::to_string(number) + ": " + done.error().message);
    }
    return {};
  }

  Result<void> run_line(const std::string& line) {
    boost::system::error_code code;
    json::value value = json::parse(line, code);
    if (code || !value.is_object()) return invalid("wanted a JSON object, found another text");
    json::object& object = value.get_object();
    if (const json::value* text = object.if_contains("text"); text != nullptr) {
      if (!text->is_string()) return invalid("text: wanted a string, found another value");
      FATHOM_ASSIGN_OR_RETURN(const std::vector<TokenId> encoded, encode(text->get_string()));
      object["ids"] = json::value_from(encoded);
    } else if (const json::value* ids = object.if_contains("ids"); ids != nullptr) {
      FATHOM_ASSIGN_OR_RETURN(const std::vector<TokenId> list, ids_of(*ids));
      FATHOM_ASSIGN_OR_RETURN(const std::string decoded, tokenizer_->decode(list));
      object["text"] = decoded;
    } else {
      return invalid("wanted `text` or `ids`, found neither");
    }
    print_json(value);
    return {};
  }

  std::string model_;
  std::string text_;
  std::string file_;
  bool decode_ = false;
  bool plain_ = false;
  bool json_ = false;
  bool jsonl_ = false;
  std::optional<Tokenizer> tokenizer_;
};

}  // namespace

std::unique_ptr<Verb> make_tokenize() { return std::make_unique<TokenizeVerb>(); }

}  // namespace fathom
