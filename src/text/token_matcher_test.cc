// Goal: a mask allows a token exactly where its bytes keep the text alive, whatever was kept from
// before; texts made under masks have the form. Method: brute force with a machine of the test's
// own over small vocabularies with tokens that cut characters and span parts, and over the released
// one.
#include "text/token_matcher.h"

#include <gtest/gtest.h>

#include <random>

#include "text/golden_test.h"
#include "text/grammar_form.h"
#include "text/grammar_regex.h"
#include "text/grammar_schema.h"
#include "text/grammar_test.h"

namespace fathom {
namespace {

// All bytes, common pieces of JSON, pieces that cut characters, repeats, markers.
const TokenTrie& small_tokens() {
  static const TokenTrie kTrie = [] {
    std::vector<std::string> tokens;
    for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
    for (const char* piece :
         {"\":",        "\",\"", "{\"", "\"}",      "}}",       "],",        "[[",
          "]]",         "\": ",  ", ",  "tru",      "e,",       "null",      "-1",
          "00",         ".5",    "e10", "\n  ",     "\\\"",     "\\u00",     "\xC3",
          "\xA9\"",     "é",     "\"é", "\xF0\x9F", "\x98\x80", "abc",       "a\",\"b",
          "\"a\":1,\"", "\":[",  "\"]", "</thi",    "nk>\n",    "</think>{", "ab",
          "ab",         "\"\"",  "{}",  "[]",       "true}",    "false]",    "\t\t",
          "\\\\",       "1,2,3", ""}) {
      tokens.emplace_back(piece);
    }
    std::vector<bool> added(tokens.size());
    for (const char* marker : {"<end>", "</think>", "<think>", "｜DSML｜"}) {
      tokens.emplace_back(marker);
      added.push_back(true);
    }
    return TokenTrie(tokens, added);
  }();
  return kTrie;
}

std::vector<Grammar> grammars() {
  std::vector<Grammar> all;
  const auto add = [&](Result<Grammar> grammar) {
    EXPECT_TRUE(grammar) << grammar.error().message;
    if (grammar) all.push_back(std::move(*grammar));
  };
  const auto schema = [&](const char* text, const GrammarFrame& frame = {}) {
    add(schema_grammar(*parse_json(text), "s", frame));
  };
  schema(R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"array",)"
         R"("items":{"type":"string"}},"c":{"type":["boolean","null"]}},"required":["b"]})");
  schema(R"({"type":"string","maxLength":5})");
  schema(R"({"type":"object","additionalProperties":{"type":"number"},"properties":{"a":true}})",
         {.thinking = true});
  schema(R"({"type":"array","items":{"$ref":"#"},"maxItems":2})");
  add(object_grammar({.thinking = true}));
  add(regex_grammar("a+", "r", {.thinking = true, .calls = true}));
  add(regex_grammar("(ab|a\",\"b|é)*[^\"]{2,5}true", "r"));
  add(form_grammar("root ::= \"a\" root \"b\" | \"a\" root \"bc\" | [{}]*", "g"));
  return all;
}

// What the bytes of a token lead to from the text so far, found from the start each time.
bool leads_on(const Grammar& grammar, const std::vector<TokenId>& text, TokenId token,
              const TokenTrie& tokens) {
  GrammarMachine machine(grammar);
  GrammarMachine::Position at = machine.start();
  std::vector<TokenId> whole = text;
  whole.push_back(token);
  for (const TokenId id : whole) {
    const std::string bytes(tokens.bytes(id));
    if (tokens.is_added(id)) {
      const auto marker = std::ranges::find(grammar.markers, bytes);
      if (marker == grammar.markers.end()) return false;
      const auto symbol = kFirstMarker + static_cast<size_t>(marker - grammar.markers.begin());
      at = machine.next(at, grammar.symbol_class[symbol]);
      continue;
    }
    if (bytes.empty()) return false;
    for (const char c : bytes) at = machine.next(at, grammar.symbol_class[static_cast<uint8_t>(c)]);
  }
  return at != GrammarMachine::kDead;
}

std::vector<TokenId> allowed(const TokenMask& mask, const TokenTrie& tokens) {
  std::vector<TokenId> ids;
  for (TokenId id = 0; id < tokens.n_tokens(); ++id) {
    if (mask_has(mask, id)) ids.push_back(id);
  }
  return ids;
}

// A random walk under the masks, each of which is held against brute force.
void walk(const Grammar& grammar, TokenMatcher& matcher, TokenMatcher& tight,
          std::mt19937& random) {
  const TokenTrie& tokens = small_tokens();
  GrammarState state = *matcher.start();
  GrammarState other = *tight.start();
  std::vector<TokenId> text;
  while (text.size() < 14) {
    const TokenMask mask = **matcher.mask(state);
    EXPECT_EQ(mask, **tight.mask(other));
    for (TokenId id = 0; id < tokens.n_tokens(); ++id) {
      ASSERT_EQ(mask_has(mask, id), leads_on(grammar, text, id, tokens)) << tokens.bytes(id);
    }
    const std::vector<TokenId> ids = allowed(mask, tokens);
    EXPECT_EQ(ids.empty(), !state.can_go_on);
    if (ids.empty()) break;
    // Long tokens are rare and interesting.
    TokenId next = ids[random() % ids.size()];
    for (int i = 0; i < 4 && next < 256; ++i) next = ids[random() % ids.size()];
    ASSERT_TRUE(*matcher.accept(state, next));
    ASSERT_TRUE(*tight.accept(other, next));
    EXPECT_EQ(state.can_end, other.can_end);
    EXPECT_EQ(state.written, other.written);
    text.push_back(next);
  }
}

TEST(TokenMatcher, AMaskEqualsBruteForce) {
  const TokenTrie& tokens = small_tokens();
  std::mt19937 random(7);
  for (const Grammar& grammar : grammars()) {
    // So little is kept that most of it is worked out again and again.
    TokenMatcher tight(grammar, tokens, {.n_positions = 20, .mask_bytes = 200});
    TokenMatcher matcher(grammar, tokens);
    for (int i = 0; i < 6; ++i) walk(grammar, matcher, tight, random);
    EXPECT_GT(tight.n_computed(), matcher.n_computed());
  }
}

TEST(TokenMatcher, ATokenThatMayNotComeLeavesTheStateAlone) {
  const auto grammar = regex_grammar("ab", "r");
  TokenMatcher matcher(*grammar, small_tokens());
  GrammarState state = *matcher.start();
  EXPECT_FALSE(*matcher.accept(state, 'b'));
  EXPECT_FALSE(*matcher.accept(state, small_tokens().added_token("<end>")));
  EXPECT_TRUE(*matcher.accept(state, 'a'));
  EXPECT_FALSE(state.can_end);
  EXPECT_TRUE(*matcher.accept(state, 'b'));
  EXPECT_TRUE(state.can_end);
  EXPECT_FALSE(state.can_go_on);
}

TEST(TokenMatcher, TheEndOfThinkingIsSeenAsATokenAndSpelled) {
  const auto grammar = regex_grammar("\\{\\}", "r", {.thinking = true});
  const TokenTrie& tokens = small_tokens();
  TokenMatcher matcher(*grammar, tokens);
  const auto id_of = [&](std::string_view text) {
    for (TokenId id = 0; id < tokens.n_tokens(); ++id) {
      if (tokens.bytes(id) == text && !tokens.is_added(id)) return id;
    }
    return kNoToken;
  };
  GrammarState marked = *matcher.start();
  const TokenMask before = **matcher.mask(marked);
  EXPECT_TRUE(mask_has(before, id_of("abc")));
  EXPECT_TRUE(mask_has(before, tokens.added_token("</think>")));
  EXPECT_FALSE(mask_has(before, tokens.added_token("<end>")));
  EXPECT_TRUE(mask_has(before, id_of("</think>{")));
  GrammarState spelled = marked;
  GrammarState crossing = marked;
  ASSERT_TRUE(*matcher.accept(marked, tokens.added_token("</think>")));
  EXPECT_FALSE(mask_has(**matcher.mask(marked), id_of("abc")));
  EXPECT_FALSE(mask_has(**matcher.mask(marked), tokens.added_token("</think>")));
  ASSERT_TRUE(*matcher.accept(spelled, id_of("</thi")));
  ASSERT_TRUE(*matcher.accept(spelled, id_of("nk>\n")));
  EXPECT_EQ(allowed(**matcher.mask(spelled), tokens),
            (std::vector<TokenId>{'\n', '{', id_of("{}")}));
  ASSERT_TRUE(*matcher.accept(crossing, id_of("</think>{")));
  EXPECT_EQ(allowed(**matcher.mask(crossing), tokens), (std::vector<TokenId>{'}'}));
}

std::vector<TokenId> fitting(std::string_view text) {
  const TokenTrie& tokens = small_tokens();
  std::vector<TokenId> fit;
  for (TokenId id = 0; id < tokens.n_tokens(); ++id) {
    if (!tokens.bytes(id).empty() && text.starts_with(tokens.bytes(id))) fit.push_back(id);
  }
  return fit;
}

// Every cut of a document into tokens is taken.
TEST(TokenMatcher, ADocumentIsTakenInEveryCut) {
  const auto grammar = schema_grammar(
      *parse_json(R"({"type":"object","properties":{"a":{"type":"array","items":{}},)"
                  R"("é":{"type":"string"}}})"),
      "s");
  TokenMatcher matcher(*grammar, small_tokens());
  const std::string document =
      "{\"a\": [1,2,3, [[]], null, \"\\\"é\"],\n  \"é\":\"a\xF0\x9F\x98\x80\"}";
  std::mt19937 random(9);
  int n_tokens = 0;
  for (int i = 0; i < 400; ++i) {
    GrammarState state = *matcher.start();
    for (size_t at = 0; at < document.size(); ++n_tokens) {
      const std::vector<TokenId> fit = fitting(std::string_view(document).substr(at));
      const TokenId next = fit[random() % fit.size()];
      ASSERT_TRUE(mask_has(**matcher.mask(state), next));
      ASSERT_TRUE(*matcher.accept(state, next));
      at += small_tokens().bytes(next).size();
    }
    EXPECT_TRUE(state.can_end);
    EXPECT_FALSE(state.can_go_on);
  }
  EXPECT_GT(n_tokens, 400 * 10);
}

// Positions that no two texts share: the bound ends the mask, and the next one is worked out again.
TEST(TokenMatcher, ABoundThatIsPassedIsAnErrorAndNoHarm) {
  const auto grammar = form_grammar(
      "root ::= \"a\" root \"a\" | \"b\" root \"b\" | \"c\" root \"c\" | \"d\" root \"d\" | \"\"",
      "g");
  ASSERT_TRUE(grammar);
  std::vector<std::string> words;
  for (int i = 0; i < 1 << 16; ++i) {
    std::string word;
    for (int k = 0; k < 8; ++k) word += "abcd"[i >> (2 * k) & 3];
    words.push_back(word);
  }
  const TokenTrie tokens(words, std::vector<bool>(words.size()));
  TokenMatcher matcher(*grammar, tokens);
  GrammarState state = *matcher.start();
  const auto mask = matcher.mask(state);
  ASSERT_FALSE(mask);
  EXPECT_EQ(mask.error().code, ErrorCode::kExhausted);
  EXPECT_TRUE(*matcher.accept(state, 5));
  EXPECT_TRUE(state.can_go_on);
}

// Nearly every cut of a text into rules is one of its readings: what a token costs grows with the
// text, until the bound of work ends it. Without one, 300 tokens took a minute.
TEST(TokenMatcher, AnAmbiguousTextEndsAtItsBoundOfWork) {
  const auto grammar =
      form_grammar("root ::= s\ns ::= \"a\" s s s | \"a\" s s | \"a\" s | [a-z] s s | \"\"", "g");
  ASSERT_TRUE(grammar);
  const TokenTrie tokens(released_tokenizer());
  constexpr int64_t kWork = 200'000;
  TokenMatcher matcher(*grammar, tokens, {.work = kWork});
  GrammarState state = *matcher.start();
  const TokenId a = released_tokenizer().encode("a", AddedTokens::kIgnore)->front();
  int n = 0;
  while (true) {
    const auto mask = matcher.mask(state);
    EXPECT_LT(matcher.work(), 2 * kWork);
    const Result<bool> taken = mask ? matcher.accept(state, a) : mask.error();
    if (!taken) {
      EXPECT_EQ(taken.error().code, ErrorCode::kExhausted);
      break;
    }
    ASSERT_LT(++n, 1000);
  }
  EXPECT_GT(n, 2);
  EXPECT_TRUE(matcher.mask(*matcher.start()));
}

GrammarMachine::Position moved(GrammarMachine& machine, GrammarMachine::Position at,
                               std::string_view bytes) {
  for (const char c : bytes) {
    at = machine.next(at, machine.grammar().symbol_class[static_cast<uint8_t>(c)]);
  }
  return at;
}

TEST(TokenMatcher, MasksOfTheReleasedVocabularyEqualBruteForce) {
  const TokenTrie tokens(released_tokenizer());
  const auto grammar =
      schema_grammar(*parse_json(R"({"type":"object","properties":{"name":{"type":"string"},)"
                                 R"("n":{"type":"integer","minimum":0},"tags":{"type":"array",)"
                                 R"("items":{"enum":["red","green"]}}},"required":["name","n"]})"),
                     "s", {.thinking = true});
  ASSERT_TRUE(grammar);
  TokenMatcher matcher(*grammar, tokens);
  const auto ids = *released_tokenizer().encode(
      "so</think>{\"name\": \"Zoë 中\", \"n\": 120, \"tags\":[\"red\"]}", AddedTokens::kMatch);
  GrammarState state = *matcher.start();
  GrammarMachine machine(*grammar);
  std::string text;
  for (const TokenId next : ids) {
    const TokenMask mask = **matcher.mask(state);
    GrammarMachine::Position from = machine.read(state.written);
    for (TokenId id = 0; id < tokens.n_tokens(); ++id) {
      if (tokens.is_added(id)) continue;
      const bool leads = moved(machine, from, tokens.bytes(id)) != GrammarMachine::kDead;
      ASSERT_EQ(mask_has(mask, id), leads && !tokens.bytes(id).empty()) << id;
    }
    ASSERT_TRUE(*matcher.accept(state, next)) << tokens.bytes(next);
  }
  EXPECT_TRUE(state.can_end);
  EXPECT_FALSE(state.can_go_on);
}

}  // namespace
}  // namespace fathom
