// Goal: a scripted executor says what its script says to the prompt that it was given, whatever the
// engine does with the sequence meanwhile. Method: an engine in this thread, the shipped tokenizer.
#include <gtest/gtest.h>

#include <map>

#include "engine/engine.h"
#include "scripted_executor.h"

namespace fathom {
namespace {

constexpr int32_t kEnd = 1;

class ScriptedTest : public testing::Test {
 protected:
  std::vector<int32_t> ids(const std::string& text) const {
    return *tokenizer_.encode(text, AddedTokens::kMatch);
  }

  // Answers by prompt, all served at once.
  std::map<std::string, std::string> answers(const Script& script,
                                             const std::vector<std::string>& prompts) {
    ScriptedExecutor executor(script, tokenizer_, kEnd,
                              {.context = 400, .n_sequences = 3, .n_blocks = 64, .max_rows = 16});
    EngineOptions options;
    options.scheduler.min_run_us = 1;  // so that sequences are parked and go on
    Engine engine(executor, options);
    std::map<RequestId, std::string> prompt_of;
    for (const std::string& prompt : prompts) {
      const auto id = engine.submit({.prompt = ids(prompt), .max_tokens = 200, .stop_ids = {kEnd}});
      EXPECT_TRUE(id);
      prompt_of[*id] = prompt;
    }
    std::map<std::string, std::string> said;
    for (int64_t now_us = 0; engine.tick(now_us); now_us += 1000) {
      for (const Output& output : engine.take_outputs(100)) take(output, prompt_of, &said);
    }
    for (const Output& output : engine.take_outputs(100)) take(output, prompt_of, &said);
    engine.check();
    EXPECT_EQ(engine.load().n_pinned_blocks, 0);
    return said;
  }

  void take(const Output& output, const std::map<RequestId, std::string>& prompt_of,
            std::map<std::string, std::string>* said) const {
    std::string& text = (*said)[prompt_of.at(output.request)];
    for (const SampledToken& token : output.tokens) text += tokenizer_.token_bytes(token.id);
    if (output.finish != EndReason::kNone && output.finish != EndReason::kStop) {
      text += std::string("[") + end_reason_name(output.finish) + "]";
    }
  }

  const Tokenizer tokenizer_ = std::move(
      *Tokenizer::load(std::string(FATHOM_SOURCE_DIR) + "/models/fathom-34m/tokenizer.json"));
};

TEST_F(ScriptedTest, TheFirstRuleThatFitsTheLastTurnAnswers) {
  const auto script =
      Script::parse(R"([{"when": ["red", "blue"], "thinking": "Two.", "answer": "both"},)"
                    R"({"when": "red", "unless": "dark", "answer": "rouge"},)"
                    R"({"when": "dark", "prompt": "green", "answer": "vert"}])");
  ASSERT_TRUE(script) << script.error().message;
  const std::vector<std::string> prompts = {
      "<｜User｜>blue, red<｜Assistant｜><think>", "<｜User｜>blue, red<｜Assistant｜></think>",
      "<｜User｜>blue<｜Assistant｜>x<｜User｜>red<｜Assistant｜></think>",
      "green<｜User｜>dark red<｜Assistant｜></think>",
      "<｜User｜>dark red<｜Assistant｜></think>"};
  const auto said = answers(*script, prompts);
  EXPECT_EQ(said.at(prompts[0]), "Two.</think>both");
  EXPECT_EQ(said.at(prompts[1]), "both");
  EXPECT_EQ(said.at(prompts[2]), "rouge");
  EXPECT_EQ(said.at(prompts[3]), "vert");
  EXPECT_EQ(said.at(prompts[4]), "[error]");
}

TEST_F(ScriptedTest, StreamsOfLettersDifferAndArriveWhole) {
  const auto script = Script::parse(R"([{"letters": true}])");
  ASSERT_TRUE(script);
  std::vector<std::string> prompts;
  for (int stream = 0; stream < 9; ++stream) {
    prompts.push_back("<｜User｜>stream " + std::to_string(stream * 17) + " letters 150");
  }
  const auto said = answers(*script, prompts);
  for (int stream = 0; stream < 9; ++stream) {
    std::string want;
    for (int k = 0; k < 150; ++k) want += stream_letter(stream * 17, k);
    EXPECT_EQ(said.at(prompts[static_cast<size_t>(stream)]), want);
  }
}

TEST(Script, WhatIsWrongIsRefusedByName) {
  EXPECT_EQ(Script::parse("{}").error().message, "script: wanted an array of rules");
  EXPECT_EQ(Script::parse(R"([{}, {"answer": 3}])").error().message,
            "script: rule 1.answer: wanted a member of a rule with its type");
  EXPECT_EQ(Script::parse(R"([{"when": [1]}])").error().message,
            "script: rule 0.when: wanted texts");
}

}  // namespace
}  // namespace fathom
