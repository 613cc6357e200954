#pragma once

// SchemaReader: a JSON Schema as expressions of a builder. Private to grammar_schema.
//
// Thread rule: one reader, one thread.

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "text/grammar_builder.h"
#include "text/grammar_json.h"
#include "text/json_text.h"

namespace fathom {

class SchemaReader {
 public:
  using Expr = GrammarBuilder::Expr;

  // `root` is what references lead into, `where` its path; both outlive the reader.
  SchemaReader(const Json& root, const std::string& where) : root_(root), where_(where) {}

  Result<Grammar> read(const GrammarFrame& frame);

 private:
  // A schema that a reference leads to is a rule, read after what refers to it.
  struct Pending {
    GrammarBuilder::RuleId rule = {};
    const Json* schema = nullptr;
    std::string path;
  };
  struct Property {
    bool required = false;
    Expr member = {};
  };

  // grammar_schema.cc
  Expr referred(const std::string& pointer, const Json& schema, const std::string& path);
  Result<Expr> value(const Json& schema, const std::string& path);
  Result<Expr> whole_value(const JsonMember& member, const Json* type, const std::string& path);
  Result<Expr> reference(const std::string& reference, const std::string& path);
  Result<Expr> typed_value(const Json& schema, const std::vector<std::string>& typed,
                           const std::string& path);
  Result<Expr> value_of_type(const std::string& type, const Json& schema, const std::string& path);

  // grammar_schema_scalar.cc
  Result<Expr> string(const Json& schema, const std::string& path);
  Result<Expr> integer(const Json& schema, const std::string& path);
  Result<Expr> number(const Json& schema, const std::string& path);

  // grammar_schema_container.cc
  Expr as_rule(const char* name, Expr body);
  Result<Expr> object(const Json& schema, const std::string& path);
  static Result<void> mark_required(const Json& schema, const std::vector<std::string>& names,
                                    std::vector<Property>& properties, const std::string& path);
  Result<std::optional<Expr>> other_members(const Json& schema,
                                            const std::vector<std::string>& names,
                                            const std::string& path);
  Expr members(const std::vector<Property>& properties, const std::optional<Expr>& others);
  Result<Expr> array(const Json& schema, const std::string& path);
  Expr elements(const std::vector<Expr>& items, Expr other, int64_t low, int64_t high);

  const Json& root_;
  const std::string& where_;
  GrammarBuilder builder_;
  JsonParts json_{builder_};
  std::map<std::string, GrammarBuilder::RuleId> rules_;
  std::deque<Pending> pending_;
};

}  // namespace fathom
