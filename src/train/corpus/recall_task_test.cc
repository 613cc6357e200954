#include "train/corpus/recall_task.h"

#include <gtest/gtest.h>

#include <set>

#include "train/corpus/bpe_trainer.h"

namespace fathom::train {
namespace {

class RecallTest : public testing::Test {
 protected:
  RecallTest()
      : tokenizer_(toy_tokenizer()),
        filler_(Filler::make(tokenizer_, documents(), "toy").value()) {}

  static std::vector<std::string> documents() {
    std::vector<std::string> texts;
    SynthRng rng(7);
    for (int i = 0; i < 40; ++i) {
      std::string text;
      for (int j = 0; j < 80; ++j) {
        text += "line " + std::to_string(rng.below(1000)) + " of the text about things\n";
      }
      texts.push_back(std::move(text));
    }
    return texts;
  }

  static Tokenizer toy_tokenizer() {
    BpeOptions options;
    options.vocab_size = 400;
    options.patterns = small_model_patterns();
    options.head_tokens = small_model_head_tokens();
    options.tail_tokens = small_model_tail_tokens();
    auto trainer = BpeTrainer::create(options);
    EXPECT_TRUE(trainer);
    for (const std::string& text : documents()) EXPECT_TRUE(trainer->add_text(text));
    EXPECT_TRUE(trainer->add_text("The pass code of the quiet river is. Question: What is the\n"));
    auto tokenizer = Tokenizer::from_json(bpe_json(trainer->train()), "toy");
    EXPECT_TRUE(tokenizer);
    return std::move(*tokenizer);
  }

  TokenRow row_of(int length, uint64_t seed) const {
    return recall_row(tokenizer_, filler_, length, seed).value();
  }

  std::string text_of(const std::vector<TokenId>& ids) const {
    return *tokenizer_.decode_bytes(ids);
  }

  Tokenizer tokenizer_;
  Filler filler_;
};

TEST_F(RecallTest, RowsHaveTheExactLengthAndFollowTheSeed) {
  for (int length : {200, 513, 1025, 2049}) {
    for (uint64_t seed = 0; seed < 50; ++seed) {
      const TokenRow row = row_of(length, seed);
      ASSERT_EQ(row.ids.size(), static_cast<size_t>(length));
      ASSERT_EQ(row.weights.size(), row.ids.size());
      ASSERT_EQ(row.ids, row_of(length, seed).ids);
    }
  }
  EXPECT_NE(row_of(513, 1).ids, row_of(513, 2).ids);
}

// Runs of one weight, as text.
std::vector<std::string> runs(const Tokenizer& tokenizer, const TokenRow& row, uint8_t weight) {
  std::vector<std::string> found;
  for (size_t i = 0; i < row.ids.size(); ++i) {
    if (row.weights[i] != weight) continue;
    if (i == 0 || row.weights[i - 1] != weight) found.emplace_back();
    found.back() += tokenizer.token_bytes(row.ids[i]);
  }
  return found;
}

TEST_F(RecallTest, EveryAnswerWasStatedBefore) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const TokenRow row = row_of(1025, seed);
    const std::vector<std::string> answers = runs(tokenizer_, row, kAnswerWeight);
    ASSERT_FALSE(answers.empty());
    std::set<std::string> stated;
    std::string value;
    for (size_t i = 0; i < row.ids.size(); ++i) {
      if (row.weights[i] == kTextWeight) {
        value.clear();
        continue;
      }
      value += tokenizer_.token_bytes(row.ids[i]);
      const bool ends = i + 1 == row.ids.size() || row.weights[i + 1] != row.weights[i];
      if (!ends) continue;
      if (row.weights[i] == 0) stated.insert(value);
      if (row.weights[i] == kAnswerWeight) {
        ASSERT_TRUE(stated.count(value)) << seed << " " << value;
      }
    }
  }
}

TEST_F(RecallTest, TrainingNeverUsesHeldOutNumbersOrKeys) {
  int numbers = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const TokenRow row = row_of(1025, seed);
    for (const std::string& value : runs(tokenizer_, row, kAnswerWeight)) {
      if (value.find_first_not_of("0123456789") != std::string::npos) continue;
      EXPECT_FALSE(number_is_held_out(std::stoll(value)));
      ++numbers;
    }
    const std::string text = text_of(row.ids);
    const std::string marker = "The pass code of the ";
    for (size_t at = text.find(marker); at != text.npos; at = text.find(marker, at + 1)) {
      const size_t begin = at + marker.size();
      EXPECT_FALSE(key_is_held_out(text.substr(begin, text.find(" is ", begin) - begin)));
    }
  }
  EXPECT_GT(numbers, 1000);
}

TEST_F(RecallTest, NeedlesAreHeldOutAndFarFromTheAnswer) {
  std::set<int> eighths;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    for (int n_facts : {1, 8}) {
      const NeedleCase found = needle_case(tokenizer_, filler_, {1024, n_facts, seed}).value();
      EXPECT_EQ(found.prompt.size() + found.answer.size(), 1024u);
      EXPECT_EQ(found.answer.size(), 5u);
      EXPECT_EQ(text_of(found.answer), found.value);
      EXPECT_TRUE(key_is_held_out(found.key));
      EXPECT_TRUE(number_is_held_out(std::stoll(found.value)));
      const std::string text = text_of(found.prompt);
      const std::string fact = "The pass code of the " + found.key + " is " + found.value + ".\n";
      EXPECT_NE(text.find(fact), std::string::npos);
      EXPECT_EQ(text.find(fact, text.find(fact) + 1), std::string::npos);
      EXPECT_TRUE(
          text.ends_with("Question: What is the pass code of the " + found.key + "?\nAnswer: "));
      const auto fact_tokens =
          static_cast<int64_t>(tokenizer_.encode(fact, AddedTokens::kIgnore)->size());
      EXPECT_GE(1024 - 5 - found.fact_position - fact_tokens, 100);
      eighths.insert(static_cast<int>(found.fact_position * 8 / 1024));
    }
  }
  EXPECT_GE(eighths.size(), 7u);  // depths are spread
  const NeedleCase again = needle_case(tokenizer_, filler_, {1024, 8, 3}).value();
  EXPECT_EQ(again.prompt, needle_case(tokenizer_, filler_, {1024, 8, 3}).value().prompt);
  EXPECT_FALSE(needle_case(tokenizer_, filler_, {64, 8, 3}));
}

TEST_F(RecallTest, FillerThatIsTooShortIsRefusedByName) {
  const Result<Filler> lineless = Filler::make(tokenizer_, {"one line without an end"}, "h/a.gz");
  ASSERT_FALSE(lineless);
  EXPECT_TRUE(lineless.error().message.starts_with("h/a.gz: wanted text with lines, found "))
      << lineless.error().message;
  EXPECT_FALSE(Filler::make(tokenizer_, {}, "h/a.gz"));

  const Filler few = Filler::make(tokenizer_, {"two\nlines\nand more"}, "h/b.gz").value();
  const Result<NeedleCase> needle = needle_case(tokenizer_, few, {1024, 1, 0});
  ASSERT_FALSE(needle);
  EXPECT_TRUE(needle.error().message.starts_with("h/b.gz: wanted at least "));
  EXPECT_NE(needle.error().message.find(" tokens up to the end of a line, found "),
            std::string::npos)
      << needle.error().message;
  EXPECT_FALSE(recall_row(tokenizer_, few, 200, 0));
}

}  // namespace
}  // namespace fathom::train
