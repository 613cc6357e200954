// The added-token matcher against its definition: leftmost first, longest at equal start.

#include "text/added_tokens.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace fathom {
namespace {

TEST(AddedTokens, EqualsItsDefinitionOnRandomTokens) {
  const auto seed = std::random_device()();
  std::mt19937 random(seed);
  const auto word = [&](size_t max) {
    std::string text;
    for (size_t i = 0, n = 1 + random() % max; i < n; ++i)
      text += static_cast<char>('a' + random() % 3);
    return text;
  };
  for (int round = 0; round < 500; ++round) {
    std::set<std::string> contents;
    for (size_t i = 0, n = random() % 12; i < n; ++i) contents.insert(word(5));
    std::vector<AddedToken> tokens;
    for (const auto& content : contents) {
      tokens.push_back({static_cast<TokenId>(100 + tokens.size()), content, false});
    }
    const AddedTokenMatcher matcher(tokens);
    const std::string text = word(30);
    const size_t from = random() % text.size();
    const size_t end = from + random() % (text.size() - from + 1);

    std::optional<AddedTokenMatcher::Match> wanted;
    for (size_t begin = from; begin < end && !wanted; ++begin) {
      for (const auto& token : tokens) {
        const size_t token_end = begin + token.content.size();
        if (token_end > end || text.compare(begin, token.content.size(), token.content) != 0)
          continue;
        if (!wanted || wanted->range.end < token_end) wanted = {{begin, token_end}, token.id};
      }
    }
    const auto found = matcher.find(text, from, end);
    ASSERT_EQ(found.has_value(), wanted.has_value()) << "seed " << seed;
    if (found) {
      EXPECT_EQ(found->range, wanted->range) << "seed " << seed;
      EXPECT_EQ(found->id, wanted->id) << "seed " << seed;
    }
    for (const auto& token : tokens) EXPECT_EQ(matcher.find_exact(token.content), token.id);
    EXPECT_EQ(matcher.find_exact("abcabcabc"), kNoToken);
  }
}

}  // namespace
}  // namespace fathom
