#pragma once

// SchemaReader: a JSON Schema as expressions of a builder. Private to grammar_schema and
// grammar_tools.
//
// Thread rule: one reader, one thread.

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/grammar_builder.h"
#include "text/grammar_json.h"
#include "text/json_text.h"

namespace fathom {

// What ends the text of a parameter, and so is never in one.
inline constexpr std::string_view kTextEnd = "</｜DSML｜";
// A character of it; where it cannot stand, the whole cannot.
inline constexpr char32_t kTextEndMark = U'｜';

// Which values of a schema are meant, and how they are written.
enum class SchemaPart : uint8_t {
  kAll,    // all, as JSON
  kText,   // the strings, as they are: the text of a parameter of a tool
  kOther,  // all but strings, as JSON
};

class SchemaReader {
 public:
  using Expr = GrammarBuilder::Expr;

  // `root` is what references lead into, `where` its path. `closed`: an object has all its listed
  // properties and no others where its schema says nothing of it. All outlive the reader.
  SchemaReader(GrammarBuilder& builder, JsonParts& json, const Json& root, const std::string& where,
               bool closed)
      : builder_(builder), json_(json), root_(root), where_(where), closed_(closed) {}

  // The whole.
  Result<Expr> read();

  // The members of an object of the root's own keywords, each as text and as other JSON.
  struct Parameter {
    std::string name;
    Expr text = {};
    Expr other = {};
  };
  Result<std::vector<Parameter>> read_parameters();

 private:
  // A schema that a reference leads to is a rule, read after what refers to it.
  struct Pending {
    GrammarBuilder::RuleId rule = {};
    const Json* schema = nullptr;
    std::string path;
    SchemaPart part = SchemaPart::kAll;
  };
  struct Property {
    bool required = false;
    Expr member = {};
  };
  // A oneOf, looked at when all that its branches refer to was checked.
  struct Alternatives {
    const JsonArray* branches = nullptr;
    std::string path;
  };
  struct Keywords {
    std::vector<std::string> typed;     // those that speak of values of one type
    const JsonMember* whole = nullptr;  // the one that speaks of the value as a whole
  };

  // grammar_schema.cc
  Result<void> read_pending();
  Expr referred(const std::string& pointer, const Json& schema, const std::string& path,
                SchemaPart part);
  static Result<Keywords> keywords(const Json& schema, const std::string& path);
  Result<Expr> value(const Json& schema, const std::string& path, SchemaPart part);
  Expr anything(SchemaPart part);
  Result<Expr> listed_values(const JsonMember& member, const Json* type, const std::string& path,
                             SchemaPart part);
  Result<Expr> branches(const JsonMember& member, const std::string& path, SchemaPart part);
  Result<Expr> reference(const std::string& reference, const std::string& path, SchemaPart part);
  Result<Expr> typed_value(const Json& schema, const std::vector<std::string>& typed,
                           const std::string& path, SchemaPart part);
  Result<Expr> value_of_type(const std::string& type, const Json& schema, const std::string& path,
                             SchemaPart part);

  // grammar_schema_scalar.cc
  Expr any_text();
  Result<Expr> string(const Json& schema, const std::string& path, SchemaPart part);
  Result<Expr> integer(const Json& schema, const std::string& path);
  Result<Expr> number(const Json& schema, const std::string& path);

  // grammar_schema_container.cc
  Expr as_rule(const char* name, Expr body);
  Result<Expr> object(const Json& schema, const std::string& path);
  Result<void> mark_required(const Json& schema, const std::vector<std::string>& names,
                             std::vector<Property>& properties, const std::string& path) const;
  Result<std::optional<Expr>> other_members(const Json& schema,
                                            const std::vector<std::string>& names,
                                            const std::string& path);
  Expr members(const std::vector<Property>& properties, const std::optional<Expr>& others);
  Result<Expr> array(const Json& schema, const std::string& path);
  Expr elements(const std::vector<Expr>& items, Expr other, int64_t low, int64_t high);

  GrammarBuilder& builder_;
  JsonParts& json_;
  const Json& root_;
  const std::string& where_;
  bool closed_;
  std::map<std::pair<std::string, SchemaPart>, GrammarBuilder::RuleId> rules_;
  std::deque<Pending> pending_;
  std::vector<Alternatives> alternatives_;
};

}  // namespace fathom
