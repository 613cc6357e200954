#include <unistd.h>

#include <CLI/CLI.hpp>
#include <iostream>

#include "apps/common.h"
#include "apps/input.h"
#include "apps/numbers.h"
#include "apps/verb.h"
#include "text/json_output.h"

namespace fathom {
namespace {

namespace json = boost::json;

constexpr uint64_t kMaxInputBytes = uint64_t{1} << 30;

Result<std::vector<TokenId>> ids_of(const json::value& value) {
  if (!value.is_array()) return invalid("ids: wanted an array of integers, found another value");
  std::vector<TokenId> ids;
  for (const json::value& entry : value.get_array()) {
    const int64_t* id = entry.if_int64();
    if (id == nullptr || *id < INT32_MIN || *id > INT32_MAX) {
      return invalid("ids: wanted integers, found " + shown_value(json_output(entry)));
    }
    ids.push_back(static_cast<TokenId>(*id));
  }
  return ids;
}

// The object of a line with one member more. The rest stays as it was written: a number that no
// double holds is data too.
std::string with_member(const std::string& line, const char* name, const json::value& value) {
  const size_t end = line.rfind('}');
  return line.substr(0, end) + ",\"" + name + "\":" + json_output(value) + "}";
}

class TokenizeVerb final : public Verb {
 public:
  const char* name() const override { return "tokenize"; }
  const char* help() const override { return "Text to ids, or ids to text; no automatic BOS"; }

  void add_options(CLI::App& app) override {
    app.add_option("-m,--model", model_, "Model folder (default: the model in models/)");
    CLI::Option* text =
        app.add_option("-p,--prompt", text_, "Text, or with --decode ids with commas between");
    CLI::Option* file =
        app.add_option("-f,--file", file_,
                       "Read the text from a file or pipe (default, and -: standard input)")
            ->type_name("FILE");
    file->excludes(text);
    CLI::Option* decode = app.add_flag("--decode", decode_, "Ids to text");
    app.add_flag("--plain", plain_, "Leave added tokens unmatched")->excludes(decode);
    CLI::Option* json = app.add_flag("--json", json_, "Print one JSON object");
    app.add_flag(
           "--jsonl", jsonl_,
           "A JSON line with `text` or `ids` in, the same line with the other added out; from "
           "standard input")
        ->excludes(text)
        ->excludes(file)
        ->excludes(decode)
        ->excludes(json);
    text_option_ = text;
    file_option_ = file;
  }

  std::string misuse(const TypedOptions& /*typed*/) const override {
    if (!decode_ || text_option_->count() == 0) return {};
    const auto ids = parse_list(text_);
    return ids ? std::string() : "-p: " + ids.error().message;
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
    if (text_option_->count() > 0) return text_;
    if (file_option_->count() > 0) return read_text(file_, kMaxInputBytes);
    return read_standard_input(kMaxInputBytes);
  }

  std::string source() const {
    return file_option_->count() > 0 ? file_ : std::string("standard input");
  }

  Result<std::vector<TokenId>> encode(std::string_view text) const {
    return tokenizer_->encode(text, plain_ ? AddedTokens::kIgnore : AddedTokens::kMatch);
  }

  Result<void> run_one() {
    FATHOM_RETURN_IF_ERROR(load());
    FATHOM_ASSIGN_OR_RETURN(const std::string text, input());
    json::object result;
    if (decode_) {
      const Result<std::vector<TokenId>> list = parse_list(text);
      if (!list) return invalid(source() + ": " + list.error().message);
      const std::vector<TokenId>& ids = *list;
      FATHOM_ASSIGN_OR_RETURN(const std::string decoded, tokenizer_->decode_bytes(ids));
      if (!json_) return print_bytes(decoded), Result<void>();
      result = {{"ids", json::value_from(ids)}, {"text", decoded}};
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

  // The bytes of the ids and no more, so that a file comes back as it was; a shell's prompt should
  // begin a line.
  static void print_bytes(const std::string& bytes) {
    std::cout << bytes;
    if (::isatty(1) != 0 && !bytes.ends_with('\n')) std::cout << "\n";
    std::cout << std::flush;
  }

  // What `tokenize` says of an empty text is nothing, and decodes to it.
  static Result<std::vector<TokenId>> parse_list(const std::string& text) {
    if (text.find_first_not_of(" \t\r\n") == std::string::npos) return std::vector<TokenId>();
    return parse_ids(text);
  }

  Result<void> run_lines() {
    FATHOM_RETURN_IF_ERROR(load());
    InputLines lines(kMaxInputBytes);
    for (int64_t number = 1;; ++number) {
      FATHOM_ASSIGN_OR_RETURN(const std::optional<std::string> line, lines.next());
      if (!line) return {};
      if (line->empty()) continue;
      const Result<void> done = run_line(*line);
      if (!done) return invalid("line " + std::to_string(number) + ": " + done.error().message);
    }
  }

  Result<void> run_line(const std::string& line) {
    boost::system::error_code code;
    const json::value value = json::parse(line, code);
    if (code) return invalid("wanted a JSON object, found: " + code.message());
    if (!value.is_object()) return invalid("wanted a JSON object, found another value");
    const json::value* text = value.get_object().if_contains("text");
    const json::value* ids = value.get_object().if_contains("ids");
    if ((text == nullptr) == (ids == nullptr)) {
      return invalid(std::string("wanted `text` or `ids`, found ") + (text ? "both" : "neither"));
    }
    if (text != nullptr) {
      if (!text->is_string()) return invalid("text: wanted a string, found another value");
      FATHOM_ASSIGN_OR_RETURN(const std::vector<TokenId> encoded, encode(text->get_string()));
      std::cout << with_member(line, "ids", json::value_from(encoded));
    } else {
      FATHOM_ASSIGN_OR_RETURN(const std::vector<TokenId> list, ids_of(*ids));
      FATHOM_ASSIGN_OR_RETURN(const std::string decoded, tokenizer_->decode(list));
      std::cout << with_member(line, "text", json::value(decoded));
    }
    std::cout << "\n" << std::flush;
    return {};
  }

  const CLI::Option* text_option_ = nullptr;
  const CLI::Option* file_option_ = nullptr;
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
