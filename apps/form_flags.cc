#include "apps/form_flags.h"

#include <CLI/CLI.hpp>

#include "apps/input.h"
#include "text/grammar_form.h"
#include "text/grammar_regex.h"
#include "text/grammar_schema.h"

namespace fathom {
namespace {

constexpr uint64_t kMaxFormBytes = uint64_t{1} << 24;

}  // namespace

void FormFlags::add_to(CLI::App& app) {
  CLI::Option* schema =
      app.add_option("--json-schema", schema_file_, "Answer with JSON of the schema in this file");
  CLI::Option* regex =
      app.add_option("--regex", regex_, "Answer with a text of this regular expression")
          ->check([](const std::string& pattern) {
            const Result<Grammar> grammar = regex_grammar(pattern, "--regex");
            return grammar ? std::string() : grammar.error().message;
          });
  CLI::Option* grammar =
      app.add_option("--grammar", grammar_file_, "Answer with a text of the grammar in this file");
  schema->excludes(regex)->excludes(grammar);
  regex->excludes(grammar);
  regex_option_ = regex;
}

Result<std::optional<Grammar>> FormFlags::grammar(const GrammarFrame& frame) const {
  std::optional<Grammar> made;
  if (!schema_file_.empty()) {
    FATHOM_ASSIGN_OR_RETURN(const std::string text, read_text(schema_file_, kMaxFormBytes));
    const Result<Json> schema = parse_json(text);
    if (!schema) return invalid("--json-schema: " + schema.error().message);
    FATHOM_ASSIGN_OR_RETURN(made, schema_grammar(*schema, "--json-schema", frame));
  } else if (!grammar_file_.empty()) {
    FATHOM_ASSIGN_OR_RETURN(const std::string text, read_text(grammar_file_, kMaxFormBytes));
    FATHOM_ASSIGN_OR_RETURN(made, form_grammar(text, "--grammar", frame));
  } else if (regex_option_->count() > 0) {
    FATHOM_ASSIGN_OR_RETURN(made, regex_grammar(regex_, "--regex", frame));
  }
  return made;
}

}  // namespace fathom
