#include "train/corpus/data_shards.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/file.h"
#include "train/corpus/bpe_trainer.h"
#include "train/corpus/data_store.h"
#include "train/corpus/synth_text_rng.h"

namespace fathom::train {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> texts(uint64_t seed, int count) {
  SynthRng rng(seed);
  std::vector<std::string> all;
  for (int i = 0; i < count; ++i) {
    std::string text;
    for (int line = 0; line < 60; ++line) {
      text += "entry " + std::to_string(rng.below(100000)) + " holds a value\n";
    }
    all.push_back(text);
  }
  return all;
}

class ShardsTest : public testing::Test {
 protected:
  ShardsTest() : root_(fs::temp_directory_path() / ("fathom_shards_" + std::to_string(getpid()))) {
    fs::create_directories(root_ / "text");
    BpeOptions options;
    options.vocab_size = 500;
    options.patterns = small_model_patterns();
    options.head_tokens = small_model_head_tokens();
    options.tail_tokens = small_model_tail_tokens();
    auto trainer = BpeTrainer::create(options);
    EXPECT_TRUE(trainer);
    for (const std::string& text : texts(1, 20)) EXPECT_TRUE(trainer->add_text(text));
    write("tokenizer.json", bpe_json(trainer->train()));
    write("text/docs.txt", join_documents(texts(1, 60)));
    write("text/code.txt", join_documents(texts(2, 40)));
    write("text/far.txt", join_documents(texts(3, 10)));
    write("text/py-far.txt", join_documents(texts(4, 10)));
  }
  ~ShardsTest() override { fs::remove_all(root_); }

  void write(const std::string& name, const std::string& bytes) const {
    ASSERT_TRUE(write_file_atomic((root_ / name).string(), bytes));
  }

  std::string read(const std::string& name) const {
    auto bytes = read_file((root_ / name).string());
    EXPECT_TRUE(bytes) << name;
    return bytes ? *bytes : "";
  }

  fs::path root_;
};

TEST_F(ShardsTest, WritesEverythingThatARunReads) {
  auto recipe = parse_recipe(
      "docs doc train MIT 0 p *\ncode code train MIT 0 p *\n"
      "far doc held MIT 0 p *\npy-far code held MIT 0 p *\n");
  ASSERT_TRUE(recipe);
  ShardOptions options;
  options.corpus_dir = root_.string();
  options.out_dir = (root_ / "out").string();
  options.held_out_tokens = 2000;
  options.recall_tokens = 5000;
  options.dialogue_tokens = 3000;
  auto index = build_shards(*recipe, options);
  ASSERT_TRUE(index) << index.error().message;
  EXPECT_EQ(*index, read("out/index.json"));

  auto tokenizer = Tokenizer::load((root_ / "tokenizer.json").string());
  ASSERT_TRUE(tokenizer);
  std::vector<TokenId> ids;
  const std::string raw = read("out/doc.u16");
  for (size_t i = 0; i + 1 < raw.size(); i += 2) {
    ids.push_back(static_cast<unsigned char>(raw[i]) | static_cast<unsigned char>(raw[i + 1]) << 8);
  }
  std::string wanted;
  for (const std::string& text : texts(1, 60)) wanted += text + "<｜end▁of▁sentence｜>";
  EXPECT_EQ(*tokenizer->decode_bytes(ids), wanted);

  EXPECT_EQ(read("out/recall_512.u16").size() % (2 * 513), 0u);
  EXPECT_EQ(read("out/recall_512.w8").size() * 2, read("out/recall_512.u16").size());
  EXPECT_EQ(read("out/engram_map.i32").size(), static_cast<size_t>(tokenizer->vocab_size()) * 4);
  EXPECT_THAT(*index, testing::HasSubstr("{\"name\": \"held_python-web\", \"kind\": \"code\", "
                                         "\"split\": \"heldout\", \"mix\": 0, "
                                         "\"tokens\": \"held_python-web.u16\", "));
  EXPECT_THAT(*index, testing::HasSubstr("\"weights\": \"recall_512.w8\""));

  auto held = read_held_out((root_ / "out/held/far.txt.gz").string());
  ASSERT_TRUE(held);
  int64_t bytes = 0;
  for (const std::string& text : *held) bytes += static_cast<int64_t>(text.size());
  EXPECT_THAT(*index, testing::HasSubstr("\"bytes\": " + std::to_string(bytes) + ","));
  EXPECT_LT(held->size(), 10u);  // no more than was asked for

  const std::string first = read("out/dialogue.u16"), recall = read("out/recall_2048.u16");
  ASSERT_TRUE(build_shards(*recipe, options));
  EXPECT_EQ(first, read("out/dialogue.u16"));
  EXPECT_EQ(recall, read("out/recall_2048.u16"));
}

TEST_F(ShardsTest, MissingTextIsAnError) {
  auto recipe = parse_recipe("none doc train MIT 0 p *\n");
  ASSERT_TRUE(recipe);
  ShardOptions options;
  options.corpus_dir = root_.string();
  options.out_dir = (root_ / "out").string();
  EXPECT_THAT(build_shards(*recipe, options).error().message, testing::HasSubstr("none.txt"));
}

}  // namespace
}  // namespace fathom::train
