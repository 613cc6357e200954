#include "apps/form_flags.h"

#include <CLI/CLI.hpp>

#include "apps/input.h"
#include "text/grammar_form.h"
#include "text/grammar_regex.h"
#include "text/grammar_schema.h"

namespace fathom {
namespace {

constexpr uint64_t kMaxFormBytes = uint64_t{1} << 24;

Error of_file(const std::string& file, const Error& error) {
  return {error.code, file + ": " + error.message};
}

}  // namespace

void FormFlags::add_to(CLI::App& app) {
  CLI::Option* schema =
      app.add_option("--json-schema", schema_file_, "Answer with JSON of the schema in this file")
          ->type_name("FILE");
  CLI::Option* regex =
      app.add_option("--regex", regex_, "Answer with a text of this regular expression")
          ->check([](const std::string& pattern) -> std::string {
            const std::string where = "--regex";  // which the parser of options writes too
            const Result<Grammar> grammar = regex_grammar(pattern, where);
            if (grammar) return {};
            const std::string& message = grammar.error().message;
            return message.starts_with(where + ": ") ? message.substr(where.size() + 2) : message;
          });
  CLI::Option* grammar =
      app.add_option("--grammar", grammar_file_, "Answer with a text of the grammar in this file")
          ->type_name("FILE");
  schema->excludes(regex)->excludes(grammar);
  regex->excludes(grammar);
  regex_option_ = regex;
}

Result<std::optional<Grammar>> FormFlags::grammar(const GrammarFrame& frame) const {
  std::optional<Grammar> made;
  if (!schema_file_.empty()) {
    FATHOM_ASSIGN_OR_RETURN(const std::string text, read_text(schema_file_, kMaxFormBytes));
    const Result<Json> schema = parse_json(text);
    if (!schema)
      return of_file(schema_file_,
                     {schema.error().code, "--json-schema: " + schema.error().message});
    Result<Grammar> read = schema_grammar(*schema, "--json-schema", frame);
    if (!read) return of_file(schema_file_, read.error());
    made = std::move(*read);
  } else if (!grammar_file_.empty()) {
    FATHOM_ASSIGN_OR_RETURN(const std::string text, read_text(grammar_file_, kMaxFormBytes));
    Result<Grammar> read = form_grammar(text, "--grammar", frame);
    if (!read) return of_file(grammar_file_, read.error());
    made = std::move(*read);
  } else if (regex_option_->count() > 0) {
    FATHOM_ASSIGN_OR_RETURN(made, regex_grammar(regex_, "--regex", frame));
  }
  return made;
}

}  // namespace fathom
