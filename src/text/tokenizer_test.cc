// The released tokenizer against tests/golden/tokenizer, which another library produced: ids with
// and without added tokens, and every byte of the vocabulary.

#include "text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "base/hash.h"
#include "text/golden_test.h"

namespace fathom {
namespace {

using testing::ElementsAreArray;

std::string hex_sha256(std::string_view bytes) {
  return to_hex(sha256(std::as_bytes(std::span(bytes))));
}

TEST(Tokenizer, GoldenFileIsTheReleasedOne) {
  EXPECT_EQ(released_tokenizer_json().size(), 6'367'257u);
  EXPECT_EQ(hex_sha256(released_tokenizer_json()),
            "c90dfa01249db1be4245780a052ede752e1361c612ac6d08e2bdada7d599476b");
}

TEST(Tokenizer, EveryGoldenCaseHasTheSameIds) {
  const Tokenizer& tokenizer = released_tokenizer();
  const auto cases = golden_json_lines("tokenizer/cases.jsonl");
  EXPECT_EQ(cases.size(), 821u);
  int n_plain = 0;
  for (const auto& c : cases) {
    const std::string text = string_of(c.at("text"));
    const auto ids = *tokenizer.encode(text, AddedTokens::kMatch);
    const auto plain = *tokenizer.encode(text, AddedTokens::kIgnore);
    const bool differs = c.as_object().contains("ids_plain");
    n_plain += differs;
    EXPECT_THAT(ids, ElementsAreArray(ids_of(c.at("ids")))) << c.at("cat") << c.at("text");
    EXPECT_THAT(plain, ElementsAreArray(ids_of(c.at(differs ? "ids_plain" : "ids"))))
        << c.at("cat") << c.at("text");
    EXPECT_EQ(*tokenizer.decode(ids), text);
    EXPECT_EQ(*tokenizer.decode_bytes(plain), text);
  }
  EXPECT_EQ(n_plain, 106);
}

TEST(Tokenizer, VocabularyHasTheGoldenDigestAndLists) {
  const Tokenizer& tokenizer = released_tokenizer();
  const auto golden = golden_json("tokenizer/vocab.json");
  ASSERT_EQ(tokenizer.vocab_size(), golden.at("vocab_size").as_int64());
  std::string all;
  size_t longest = 0;
  std::vector<TokenId> added_not_special;
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string_view bytes = tokenizer.token_bytes(id);
    for (int shift = 0; shift < 32; shift += 8) all += static_cast<char>(bytes.size() >> shift);
    all += bytes;
    longest = std::max(longest, bytes.size());
    if (tokenizer.is_added(id) && !tokenizer.is_special(id)) added_not_special.push_back(id);
    if (tokenizer.is_added(id)) {
      EXPECT_EQ(tokenizer.added_token(bytes), id);
    }
  }
  EXPECT_EQ(hex_sha256(all), string_of(golden.at("bytes_digest").at("sha256")));
  EXPECT_EQ(static_cast<int64_t>(longest), golden.at("longest_token_bytes").as_int64());
  EXPECT_THAT(added_not_special, ElementsAreArray(ids_of(golden.at("added_not_special"))));
  for (const auto& item : golden.at("single_byte_ids").as_object()) {
    const char byte = static_cast<char>(std::stoi(std::string(item.key()), nullptr, 16));
    EXPECT_THAT(*tokenizer.encode({&byte, 1}, AddedTokens::kIgnore),
                testing::ElementsAre(item.value().as_int64()))
        << item.key();
  }
}

// Goal: `not_self_encoding` is empty: every entry that is a whole text encodes to its own id.
TEST(Tokenizer, EveryWholeEntryEncodesToItself) {
  const Tokenizer& tokenizer = released_tokenizer();
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string bytes(tokenizer.token_bytes(id));
    if (*tokenizer.decode({&id, 1}) != bytes) continue;
    ASSERT_THAT(*tokenizer.encode(bytes, AddedTokens::kMatch), testing::ElementsAre(id)) << bytes;
  }
}

TEST(Tokenizer, MarkersAloneBecomeSpecial) {
  const Tokenizer& tokenizer = released_tokenizer();
  const std::string user = "<\xEF\xBD\x9CUser\xEF\xBD\x9C>";
  const TokenId user_id = 128803;
  const std::string text = user + "say " + user + "!";
  const ByteRange marker{0, user.size()};
  const auto ids = *tokenizer.encode(text, std::span(&marker, 1));
  EXPECT_EQ(ids.front(), user_id);
  EXPECT_EQ(std::ranges::count(ids, user_id), 1);
  EXPECT_EQ(std::ranges::count(*tokenizer.encode(text, AddedTokens::kMatch), user_id), 2);
  EXPECT_EQ(*tokenizer.decode(ids), text);
  // A marker that is cut by its range is plain text.
  const ByteRange cut{0, user.size() - 1};
  EXPECT_EQ(*tokenizer.encode(text, std::span(&cut, 1)),
            *tokenizer.encode(text, AddedTokens::kIgnore));
  // Borders that match nothing do not split the text.
  const ByteRange inside[] = {{0, 2}, {3, 5}};
  EXPECT_EQ(*tokenizer.encode("something", inside), *tokenizer.encode("something", {}));
}

TEST(Tokenizer, IdsOutsideTheVocabularyAreAnError) {
  const Tokenizer& tokenizer = released_tokenizer();
  for (const TokenId bad : {-1, 129280, INT32_MAX, INT32_MIN}) {
    const std::vector<TokenId> ids{5, bad};
    const auto text = tokenizer.decode(ids);
    ASSERT_FALSE(text);
    EXPECT_EQ(text.error().message,
              "token 1 has id " + std::to_string(bad) + ", wanted 0 to 129279");
  }
}

// Goal: no byte is lost. Method: random bytes, with markup and well-formed text mixed in.
TEST(Tokenizer, EveryByteStringComesBack) {
  const Tokenizer& tokenizer = released_tokenizer();
  const auto seed = std::random_device()();
  std::mt19937 random(seed);
  const std::string_view bits[] = {"<\xEF\xBD\x9CUser\xEF\xBD\x9C>",
                                   "<think>",
                                   "\xE4\xB8\xAD",
                                   "  \n",
                                   "12345",
                                   "word",
                                   "\xEF\xBF\xBD",
                                   "\xF0\x9F\x98\x80"};
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    const int n = static_cast<int>(random() % 60);
    for (int i = 0; i < n; ++i) {
      if (random() % 2 == 0) {
        text += bits[random() % std::size(bits)];
      } else {
        text += static_cast<char>(random());
      }
    }
    for (const auto added : {AddedTokens::kMatch, AddedTokens::kIgnore}) {
      const auto ids = *tokenizer.encode(text, added);
      ASSERT_EQ(*tokenizer.decode_bytes(ids), text) << "seed " << seed;
    }
  }
}

TEST(Tokenizer, EncodingEndsWhereTheBoundIsPassed) {
  const Tokenizer& tokenizer = released_tokenizer();
  for (const std::string& unit : {std::string("word 12 "), std::string(" "), std::string("a")}) {
    std::string text;
    while (text.size() < 3000) text += unit;
    for (const auto added : {AddedTokens::kMatch, AddedTokens::kIgnore}) {
      const auto ids = *tokenizer.encode(text, added);
      EXPECT_EQ(*tokenizer.encode(text, added, ids.size()), ids);
      const auto refused = tokenizer.encode(text, added, ids.size() - 1);
      ASSERT_FALSE(refused);
      EXPECT_EQ(refused.error().code, ErrorCode::kInvalid);
    }
  }
  // Encoded whole, this would show as minutes.
  for (const char* unit : {"word 12 ", "       ", "<think>", "aaaaaaa"}) {
    std::string text;
    while (text.size() < 40'000'000) text += unit;
    EXPECT_FALSE(tokenizer.encode(text, AddedTokens::kMatch, 1000)) << unit;
  }
}

TEST(Tokenizer, ThreadsShareOneTokenizer) {
  auto fresh = Tokenizer::from_json(released_tokenizer_json(), "tokenizer.json");
  ASSERT_TRUE(fresh);
  const auto cases = golden_json_lines("tokenizer/cases.jsonl");
  std::vector<int> n_wrong(4);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (const auto& c : cases) {
        const auto ids = *fresh->encode(string_of(c.at("text")), AddedTokens::kMatch);
        n_wrong[t] += ids != ids_of(c.at("ids"));
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_THAT(n_wrong, testing::Each(0));
}

}  // namespace
}  // namespace fathom
