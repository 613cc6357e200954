// Time of masks on one thread: documents of several forms are followed token by token, first with
// nothing kept, then again; prints one JSON line for each form: tokens, and median, 99th percentile
// and largest time of a mask that was worked out, the median of one that was kept, and the time to
// compile.
//
// Usage: grammar_speed TOKENIZER.json

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <ctime>

#include "base/file.h"
#include "text/grammar_schema.h"
#include "text/token_matcher.h"
#include "text/tokenizer.h"

namespace fathom {
namespace {

// CPU time of this thread, which other programs on the machine do not lengthen.
double cpu_us() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + 1e-3 * static_cast<double>(time.tv_nsec);
}

struct Case {
  const char* name;
  const char* schema;
  const char* document;
};

constexpr Case kCases[] = {
    {"record", R"({"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer",
      "minimum":0,"maximum":150},"email":{"type":"string"},"tags":{"type":"array","items":{"type":
      "string"}},"active":{"type":"boolean"}},"required":["name","age","email","tags","active"]})",
     R"({"name": "Ada Lovelace", "age": 36, "email": "ada@example.org", "tags": ["mathematics",)"
     R"( "computing, early", "poetry"], "active": true})"},
    {"bounded strings", R"({"type":"object","properties":{"title":{"type":"string","minLength":1,
      "maxLength":80},"text":{"type":"string","maxLength":400}},"required":["title","text"]})",
     R"({"title": "On the analytical engine", "text": "The engine weaves algebraical patterns)"
     R"( just as the loom weaves flowers and leaves, and it might compose elaborate pieces."})"},
    {"nested", R"({"$defs":{"node":{"type":"object","properties":{"label":{"type":"string"},"kind":
      {"enum":["leaf","branch","root"]},"children":{"type":"array","items":{"$ref":"#/$defs/node"
      }}},"required":["label","kind","children"]}},"$ref":"#/$defs/node"})",
     R"({"label": "a", "kind": "root", "children": [{"label": "b one", "kind": "branch",)"
     R"( "children": [{"label": "c", "kind": "leaf", "children": []}]}, {"label": "d", "kind":)"
     R"( "leaf", "children": []}]})"},
    {"any object", R"({"type":"object"})",
     R"({"model": "x", "messages": [{"role": "user", "content": "hello there"}], "n": 1.5e3,)"
     R"( "stream": false, "stop": null, "user": {"id": [1, 2, 3]}})"},
};

double at(std::vector<double>& values, double share) {
  std::ranges::sort(values);
  const auto i = static_cast<size_t>(share * static_cast<double>(values.size() - 1));
  return values.empty() ? 0 : values[i];
}

// Times of the masks before each token, those that were worked out and those that were kept.
Result<void> follow(TokenMatcher& matcher, const std::vector<TokenId>& ids,
                    std::vector<double>& worked_out, std::vector<double>& kept) {
  FATHOM_ASSIGN_OR_RETURN(GrammarState state, matcher.start());
  for (const TokenId id : ids) {
    const int64_t n_before = matcher.n_computed();
    const double start = cpu_us();
    FATHOM_ASSIGN_OR_RETURN(const TokenMask* mask, matcher.mask(state));
    const double time = cpu_us() - start;
    (matcher.n_computed() > n_before ? worked_out : kept).push_back(time);
    FATHOM_ASSIGN_OR_RETURN(const bool taken, matcher.accept(state, id));
    if (!taken || !mask_has(*mask, id)) return invalid("document: it does not have its form");
  }
  return {};
}

Result<void> measure(const Case& c, const Tokenizer& tokenizer, const TokenTrie& tokens) {
  FATHOM_ASSIGN_OR_RETURN(const Json schema, parse_json(c.schema));
  const double start = cpu_us();
  FATHOM_ASSIGN_OR_RETURN(const Grammar grammar, schema_grammar(schema, "schema"));
  const double compile_us = cpu_us() - start;
  FATHOM_ASSIGN_OR_RETURN(const auto ids, tokenizer.encode(c.document, AddedTokens::kIgnore));
  std::vector<double> worked_out;
  std::vector<double> kept;
  for (int round = 0; round < 10; ++round) {
    TokenMatcher matcher(grammar, tokens);
    FATHOM_RETURN_IF_ERROR(follow(matcher, ids, worked_out, kept));
    FATHOM_RETURN_IF_ERROR(follow(matcher, ids, worked_out, kept));
  }
  fmt::print(
      "{{\"form\":\"{}\",\"vocabulary\":{},\"tokens\":{},\"states\":{},\"compile_us\":{:.0f},"
      "\"worked_out_us_median\":{:.1f},\"worked_out_us_p99\":{:.1f},\"worked_out_us_max\":{:.1f},"
      "\"kept_us_median\":{:.2f}}}\n",
      c.name, tokens.n_tokens(), ids.size(), grammar.n_states(), compile_us, at(worked_out, 0.5),
      at(worked_out, 0.99), at(worked_out, 1), at(kept, 0.5));
  return {};
}

Result<void> measure_all(const std::string& path) {
  FATHOM_ASSIGN_OR_RETURN(const Tokenizer tokenizer, Tokenizer::load(path));
  const double start = cpu_us();
  const TokenTrie tokens(tokenizer);
  fmt::print("{{\"tree_ms\":{:.1f},\"nodes\":{}}}\n", (cpu_us() - start) / 1000,
             tokens.nodes().size());
  for (const Case& c : kCases) FATHOM_RETURN_IF_ERROR(measure(c, tokenizer, tokens));
  return {};
}

}  // namespace
}  // namespace fathom

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "grammar_speed: wanted TOKENIZER.json\n");
    return 2;
  }
  const fathom::Result<void> done = fathom::measure_all(argv[1]);
  if (!done) std::fprintf(stderr, "grammar_speed: %s\n", done.error().message.c_str());
  return done ? 0 : 1;
}
