// Files that are not a tokenizer.json of the accepted form: each gives one line that names the
// file, the field and the values. The base of all is a small valid file.

#include "text/tokenizer_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "text/byte_alphabet.h"
#include "text/golden_test.h"
#include "text/utf8.h"

namespace fathom {
namespace {

namespace json = boost::json;
using testing::HasSubstr;

json::object added_token(int id, const char* content, bool special) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", special}};
}

// Ids 0 .. 255 bytes, 256 "ab", 257 "abc", 258 "bc", 259 <s> (special), 260 <think>.
json::object small_file() {
  json::object vocab;
  for (int byte = 0; byte < 256; ++byte) {
    std::string symbol;
    utf8_append(&symbol, byte_symbol(static_cast<uint8_t>(byte)));
    vocab[symbol] = byte;
  }
  vocab["ab"] = 256;
  vocab["abc"] = 257;
  vocab["bc"] = 258;
  vocab["<s>"] = 259;
  json::array merges{"a b", json::array{"ab", "c"}, "b c", "a bc"};
  json::object split{{"type", "Split"},
                     {"pattern", {{"Regex", "\\s+|\\S+"}}},
                     {"behavior", "Isolated"},
                     {"invert", false}};
  json::object byte_level{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  return {
      {"version", "1.0"},
      {"added_tokens", {added_token(259, "<s>", true), added_token(260, "<think>", false)}},
      {"normalizer", nullptr},
      {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", json::array{split, byte_level}}}},
      {"decoder", {{"type", "ByteLevel"}}},
      {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", merges}}}};
}

using Edit = std::function<void(json::object& root, json::object& model)>;

std::string failure_of(const Edit& edit) {
  json::object root = small_file();
  edit(root, root["model"].as_object());
  const auto result = Tokenizer::from_json(json::serialize(root), "small.json");
  if (result) return "accepted";
  EXPECT_EQ(result.error().message.find('\n'), std::string::npos);
  EXPECT_TRUE(result.error().message.starts_with("small.json: ")) << result.error().message;
  return result.error().message;
}

json::object& step(json::object& root, int index) {
  return root["pre_tokenizer"].at("pretokenizers").at(index).as_object();
}

TEST(TokenizerFile, SmallFileWorks) {
  const auto tokenizer = Tokenizer::from_json(json::serialize(small_file()), "small.json");
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  EXPECT_EQ(tokenizer->vocab_size(), 261);
  EXPECT_THAT(*tokenizer->encode("abc bcab<s>a", AddedTokens::kMatch),
              testing::ElementsAre(257, ' ', 258, 256, 259, 'a'));
  EXPECT_EQ(tokenizer->encode("<s>", AddedTokens::kIgnore)->size(), 3u);
  EXPECT_EQ(tokenizer->added_token("<think>"), 260);
  EXPECT_EQ(tokenizer->added_token("<thin"), std::nullopt);
  EXPECT_TRUE(tokenizer->is_special(259));
  EXPECT_FALSE(tokenizer->is_special(260));
}

TEST(TokenizerFile, MissingFileIsNamed) {
  const auto result = Tokenizer::load("/nonexistent/tokenizer.json");
  ASSERT_FALSE(result);
  EXPECT_THAT(result.error().message, HasSubstr("/nonexistent/tokenizer.json"));
}

TEST(TokenizerFile, EveryTruncationOfASmallFileIsRefused) {
  const std::string text = json::serialize(small_file());
  for (size_t n = 0; n < text.size(); n += 7) {
    const auto result = Tokenizer::from_json(std::string_view(text).substr(0, n), "small.json");
    ASSERT_FALSE(result) << n;
    EXPECT_THAT(result.error().message, HasSubstr("not JSON")) << n;
  }
  EXPECT_THAT(Tokenizer::from_json(text + " {}", "small.json").error().message,
              HasSubstr("text after the JSON value"));
  EXPECT_THAT(Tokenizer::from_json(std::string(1000, '['), "small.json").error().message,
              HasSubstr("small.json: byte"));
}

// 262 entries, two of them the same: a larger id is refused before it asks for memory.
TEST(TokenizerFile, WildIdsAskForNoMemory) {
  for (const int id : {262, 16777215, 2147483647}) {
    const std::string wanted = "wanted an integer from 0 to 261, found " + std::to_string(id);
    EXPECT_EQ(failure_of([&](auto&, auto& model) { model["vocab"].as_object()["bc"] = id; }),
              "small.json: model.vocab[\"bc\"]: " + wanted);
    EXPECT_EQ(failure_of([&](auto& root, auto&) {
                root["added_tokens"].as_array()[1].as_object()["id"] = id;
              }),
              "small.json: added_tokens[1].id: " + wanted);
  }
}

TEST(TokenizerFile, IdsMustBeUniqueAndWithoutHoles) {
  EXPECT_EQ(failure_of([](auto&, auto& model) { model["vocab"].as_object()["bc"] = 256; }),
            "small.json: model.vocab[\"bc\"]: id 256 is already that of \"ab\"");
  EXPECT_THAT(failure_of([](auto&, auto& model) { model["vocab"].as_object()["bc"] = 261; }),
              HasSubstr("no token has id 258, wanted every id from 0 to 261"));
  EXPECT_THAT(failure_of([](auto&, auto& model) { model["vocab"].as_object()["bc"] = -1; }),
              HasSubstr("model.vocab[\"bc\"]: wanted an integer from 0 to 261, found -1"));
  EXPECT_THAT(failure_of([](auto&, auto& model) { model["vocab"].as_object()["bc"] = 1e300; }),
              HasSubstr("model.vocab[\"bc\"]: wanted an integer"));
  EXPECT_THAT(failure_of([](auto&, auto& model) { model["vocab"].as_object()["bc"] = "7"; }),
              HasSubstr("found the string \"7\""));
  EXPECT_THAT(failure_of([](auto& root, auto&) {
                root["added_tokens"].as_array().push_back(added_token(258, "<x>", true));
              }),
              HasSubstr("added_tokens[2]: id 258 is already that of \"bc\""));
  EXPECT_THAT(failure_of([](auto& root, auto&) {
                root["added_tokens"].as_array().push_back(added_token(261, "<s>", true));
              }),
              HasSubstr("added_tokens[2]: id 261 of \"<s>\" differs from its id 259"));
  EXPECT_THAT(failure_of([](auto& root, auto&) {
                root["added_tokens"].as_array().push_back(added_token(261, "<think>", true));
              }),
              HasSubstr("\"<think>\" has two ids, 260 and 261"));
  EXPECT_THAT(failure_of([](auto& root, auto&) {
                root["added_tokens"].as_array().push_back(added_token(259, "<s>", true));
              }),
              HasSubstr("\"<s>\" with id 259 is given twice"));
}

TEST(TokenizerFile, BytesAndMergesMustBeComplete) {
  EXPECT_THAT(failure_of([](auto&, auto& model) { model["vocab"].as_object().erase("Q"); }),
              HasSubstr("model.vocab: byte 0x51 (symbol \"Q\") is missing"));
  // A merge whose part or result is no entry.
  const auto with_merge = [](const json::value& merge) {
    return failure_of([&](auto&, auto& model) { model["merges"].as_array().push_back(merge); });
  };
  EXPECT_EQ(with_merge("xy z"),
            "small.json: model.merges[4]: left part \"xy\" is not in model.vocab");
  EXPECT_THAT(with_merge("x yz"), HasSubstr("model.merges[4]: right part \"yz\" is not in"));
  EXPECT_THAT(with_merge("x y"), HasSubstr("model.merges[4]: result \"xy\" is not in"));
  EXPECT_THAT(with_merge("a b"), HasSubstr("model.merges[4]: repeats model.merges[0]"));
  EXPECT_THAT(with_merge("abc"), HasSubstr("is not two parts with one space"));
  EXPECT_THAT(with_merge("a b c"), HasSubstr("is not two parts with one space"));
  EXPECT_THAT(with_merge(json::array{"a"}), HasSubstr("is neither \"a b\" nor [\"a\", \"b\"]"));
  EXPECT_THAT(with_merge(7), HasSubstr("model.merges[4]: is neither"));
  // A cycle: a part that is empty makes a token of itself.
  EXPECT_THAT(with_merge(json::array{"ab", ""}), HasSubstr("right part \"\" is not in"));
  // Out of order, the other form of a cycle: "ab" is used before it is made.
  EXPECT_THAT(failure_of([](auto&, auto& model) {
                auto& merges = model["merges"].as_array();
                std::swap(merges[0], merges[1]);
              }),
              HasSubstr("model.merges[0]: part \"ab\" is neither a byte nor the result of an "
                        "earlier merge"));
  // Missing merges: one that others use, and one that only an entry needs.
  EXPECT_THAT(failure_of([](auto&, auto& model) {
                auto& merges = model["merges"].as_array();
                merges.erase(merges.begin());
              }),
              HasSubstr("part \"ab\" is neither"));
  EXPECT_THAT(failure_of([](auto&, auto& model) { model["merges"].as_array().resize(2); }),
              HasSubstr("model.vocab: \"bc\" with id 258 is no byte, no added token and not the "
                        "result of a merge"));
}

TEST(TokenizerFile, WrongTypesAreNamed) {
  EXPECT_THAT(failure_of([](auto& root, auto&) { root["model"] = 3; }),
              HasSubstr("model: wanted an object, found 3"));
  EXPECT_THAT(failure_of([](auto& root, auto&) { root.erase("model"); }),
              HasSubstr("model: is missing"));
  EXPECT_THAT(failure_of([](auto&, auto& model) { model["vocab"] = json::array{}; }),
              HasSubstr("model.vocab: wanted an object, found an array"));
  EXPECT_THAT(failure_of([](auto&, auto& model) { model["merges"] = json::object{}; }),
              HasSubstr("model.merges: wanted an array, found an object"));
  EXPECT_THAT(failure_of([](auto& root, auto&) { root["added_tokens"] = "none"; }),
              HasSubstr("added_tokens: wanted an array, found the string \"none\""));
  EXPECT_THAT(
      failure_of([](auto& root, auto&) { root["added_tokens"].at(1).as_object()["special"] = 1; }),
      HasSubstr("added_tokens[1].special: wanted true or false, found 1"));
  EXPECT_THAT(failure_of([](auto& root, auto&) {
                root["added_tokens"].at(1).as_object().erase("content");
              }),
              HasSubstr("added_tokens[1].content: is missing"));
  EXPECT_THAT(Tokenizer::from_json("[]", "small.json").error().message,
              HasSubstr("small.json: the file: wanted an object, found an array"));
}

TEST(TokenizerFile, WhatIsNotSupportedIsRefusedByName) {
  EXPECT_THAT(failure_of([](auto& root, auto&) {
                root["normalizer"] = {{"type", "NFC"}};
              }),
              HasSubstr("normalizer.type: is \"NFC\", supported is \"Sequence\""));
  EXPECT_THAT(failure_of([](auto&, auto& model) { model["type"] = "Unigram"; }),
              HasSubstr("model.type: is \"Unigram\", supported is \"BPE\""));
  EXPECT_THAT(failure_of([](auto&, auto& model) { model["dropout"] = 0.1; }),
              HasSubstr("model.dropout: is 0.1, supported is null or false"));
  EXPECT_THAT(failure_of([](auto&, auto& model) { model["byte_fallback"] = true; }),
              HasSubstr("model.byte_fallback: is true"));
  EXPECT_THAT(failure_of([](auto& root, auto&) {
                root["added_tokens"].at(0).as_object()["lstrip"] = true;
              }),
              HasSubstr("added_tokens[0].lstrip: is true, supported is false"));
  EXPECT_THAT(failure_of([](auto& root, auto&) { step(root, 0)["behavior"] = "Removed"; }),
              HasSubstr("pretokenizers[0].behavior: \"Removed\", supported is \"Isolated\""));
  EXPECT_THAT(failure_of([](auto& root, auto&) { step(root, 1)["add_prefix_space"] = true; }),
              HasSubstr("pretokenizers[1].add_prefix_space: is true"));
  EXPECT_THAT(failure_of([](auto& root, auto&) { step(root, 1)["type"] = "Digits"; }),
              HasSubstr("pretokenizers[1].type: is \"Digits\", supported is \"Split\""));
}

TEST(TokenizerFile, APatternThatDoesNotCompileIsNamed) {
  const auto with_pattern = [](const char* pattern) {
    return failure_of([&](auto& root, auto&) { step(root, 0)["pattern"] = {{"Regex", pattern}}; });
  };
  EXPECT_EQ(with_pattern("(a"),
            "small.json: pre_tokenizer: split pattern 0: \"(a\" does not compile: missing closing "
            "parenthesis");
  EXPECT_THAT(with_pattern("\\d+"), HasSubstr("has \"\\d\" at byte 0, which is not supported"));
  EXPECT_THAT(with_pattern("x\\p{Lu}"), HasSubstr("has \"\\p{Lu}\" at byte 1"));
  EXPECT_THAT(with_pattern("[[:alpha:]]"), HasSubstr("nested or POSIX class at byte 1"));
  EXPECT_THAT(with_pattern("[a&&b]"), HasSubstr("class intersection at byte 2"));
  EXPECT_THAT(with_pattern("a\\"), HasSubstr("ends in a backslash"));
  EXPECT_THAT(with_pattern("[a"), HasSubstr("does not compile"));
}

TEST(TokenizerFile, ControlCharactersStayOutOfMessages) {
  EXPECT_THAT(failure_of([](auto&, auto& model) {
                model["merges"].as_array().push_back(json::string("a\n\x01 b"));
              }),
              HasSubstr("left part \"a\\x0A\\x01\" is not in model.vocab"));
  EXPECT_THAT(failure_of([](auto&, auto& model) {
                model["merges"].as_array().push_back(json::string(std::string(5000, 'x') + " b"));
              }),
              HasSubstr("... (5000 bytes)"));
}

}  // namespace
}  // namespace fathom
