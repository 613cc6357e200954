#include "train/corpus/bpe_trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/tokenizer.h"

namespace fathom::train {
namespace {

using testing::ElementsAre;

BpeOptions toy_options(int vocab_size) {
  BpeOptions options;
  options.vocab_size = vocab_size;
  options.patterns = small_model_patterns();
  options.head_tokens = small_model_head_tokens();
  options.tail_tokens = small_model_tail_tokens();
  return options;
}

BpeTrainer toy_trainer(int vocab_size) {
  auto trainer = BpeTrainer::create(toy_options(vocab_size));
  EXPECT_TRUE(trainer) << trainer.error().message;
  return std::move(*trainer);
}

TEST(BpeTrainer, MergesTheMostFrequentPairFirst) {
  BpeOptions options;
  options.vocab_size = 259;
  options.patterns = {"\\s+"};
  auto trainer = BpeTrainer::create(options);
  ASSERT_TRUE(trainer);
  ASSERT_TRUE(trainer->add_text("hug pug hug pun bun hugs hug"));
  // Pieces: hug 3, hugs 1, pug 1, pun 1, bun 1. Pair ug: 5; then h+ug: 4; then un: 2.
  EXPECT_THAT(trainer->train().merges, ElementsAre(std::pair<std::string, std::string>("u", "g"),
                                                   std::pair<std::string, std::string>("h", "ug"),
                                                   std::pair<std::string, std::string>("u", "n")));
}

TEST(BpeTrainer, BreaksTiesByBytesAndStopsAtRarePairs) {
  BpeOptions options;
  options.vocab_size = 300;
  options.patterns = {" "};
  auto trainer = BpeTrainer::create(options);
  ASSERT_TRUE(trainer);
  ASSERT_TRUE(trainer->add_text("zy zy ab ab q1"));
  EXPECT_THAT(trainer->train().merges, ElementsAre(std::pair<std::string, std::string>("a", "b"),
                                                   std::pair<std::string, std::string>("z", "y")));
}

TEST(BpeTrainer, SplitsDigitsAndKeepsIndentationWithTheLineBreak) {
  const BpeTrainer trainer = toy_trainer(400);
  EXPECT_THAT(*trainer.split("if x {\n\t\treturn 120\n"),
              ElementsAre("if", " x", " {\n\t\t", "return", " ", "1", "2", "0", "\n"));
  EXPECT_THAT(*trainer.split("a\n\n    b.get(c)"),
              ElementsAre("a", "\n\n    ", "b", ".get", "(c", ")"));
}

TEST(BpeTrainer, RefusesBadInput) {
  EXPECT_THAT(BpeTrainer::create(toy_options(280)).error().message,
              testing::HasSubstr("vocab_size: wanted at least 282, found 280"));
  BpeOptions options = toy_options(400);
  options.patterns = {"("};
  EXPECT_FALSE(BpeTrainer::create(options));
  BpeTrainer trainer = toy_trainer(400);
  EXPECT_FALSE(trainer.add_text("\xFF\xFE"));
}

TEST(BpeTrainer, WritesAFileThatTheTokenizerReads) {
  std::string text;
  for (int i = 0; i < 200; ++i) {
    text +=
        "The value of parameter " + std::to_string(i) + " is returned.\n\tfor (int i = 0; ...)\n";
    text += "naïve café über Größe, " + std::string(1, static_cast<char>('a' + i % 26)) + "\"\\'\n";
  }
  BpeTrainer trainer = toy_trainer(360);
  ASSERT_TRUE(trainer.add_text(text));
  const BpeModel model = trainer.train();
  ASSERT_EQ(model.merges.size(), 360u - 256 - 3 - 23);
  const std::string json = bpe_json(model);
  EXPECT_EQ(json, bpe_json(trainer.train()));

  auto tokenizer = Tokenizer::from_json(json, "toy");
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  EXPECT_EQ(tokenizer->vocab_size(), 360);
  EXPECT_EQ(tokenizer->added_token("<｜begin▁of▁sentence｜>"), 0);
  EXPECT_EQ(tokenizer->added_token("<｜end▁of▁sentence｜>"), 1);
  EXPECT_EQ(tokenizer->added_token("<｜deepseek_image｜>"), 359);
  EXPECT_TRUE(tokenizer->is_special(2));
  EXPECT_FALSE(tokenizer->is_special(*tokenizer->added_token("<｜User｜>")));
  const std::vector<TokenId> ids = *tokenizer->encode(text, AddedTokens::kMatch);
  EXPECT_EQ(*tokenizer->decode_bytes(ids), text);
  EXPECT_LT(ids.size(), text.size() / 2);
  for (size_t i = 0; i < model.merges.size(); ++i) {
    EXPECT_EQ(tokenizer->token_bytes(static_cast<TokenId>(259 + i)),
              model.merges[i].first + model.merges[i].second);
  }
}

}  // namespace
}  // namespace fathom::train
