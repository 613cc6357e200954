#include "train/corpus/synth_text_dialogue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "text/chat_template.h"
#include "train/corpus/bpe_trainer.h"
#include "train/corpus/data_store.h"

namespace fathom::train {
namespace {

std::string text_of(const std::vector<DialoguePiece>& pieces) {
  std::string text;
  for (const DialoguePiece& piece : pieces) text += piece.text;
  return text;
}

Tokenizer byte_tokenizer() {
  BpeOptions options;
  options.vocab_size = 282;
  options.patterns = small_model_patterns();
  options.head_tokens = small_model_head_tokens();
  options.tail_tokens = small_model_tail_tokens();
  auto trainer = BpeTrainer::create(options);
  EXPECT_TRUE(trainer);
  auto tokenizer = Tokenizer::from_json(bpe_json(trainer->train()), "bytes");
  EXPECT_TRUE(tokenizer) << tokenizer.error().message;
  return std::move(*tokenizer);
}

const std::vector<Definition>& definitions() {
  static const auto* all = new std::vector<Definition>{{"A heap", "A heap is a tree of a kind."}};
  return *all;
}

int count(const std::string& text, const std::string& what) {
  int found = 0;
  for (size_t at = text.find(what); at != text.npos; at = text.find(what, at + 1)) ++found;
  return found;
}

TEST(Dialogue, FollowsTheChatFormat) {
  const DialogueGenerator generator(definitions(), RecallSplit::kTrain);
  int thinking = 0, calls = 0;
  for (uint64_t seed = 0; seed < 500; ++seed) {
    const std::string text = text_of(generator.dialogue(seed));
    ASSERT_EQ(text, text_of(generator.dialogue(seed)));
    EXPECT_TRUE(text.starts_with("<｜begin▁of▁sentence｜><｜System｜>") ||
                text.starts_with("<｜begin▁of▁sentence｜><｜User｜>"))
        << text;
    EXPECT_TRUE(text.ends_with("<｜end▁of▁sentence｜>"));
    EXPECT_EQ(count(text, "<｜begin▁of▁sentence｜>"), 1);
    EXPECT_EQ(count(text, "<｜User｜>"), count(text, "<｜Assistant｜>"));
    EXPECT_EQ(count(text, "<｜Assistant｜>"), count(text, "<｜end▁of▁sentence｜>"));
    EXPECT_EQ(count(text, "</think>"), count(text, "<｜Assistant｜>"));
    const bool thinks = text.find("<think>") != text.npos;
    EXPECT_EQ(thinks, text.find("<｜System｜>Reasoning Effort: ") != text.npos);
    thinking += thinks;
    // A calls block stands in the tools section, and once more where one is made.
    const int blocks = count(text, "<｜DSML｜ calls>\n");
    EXPECT_EQ(blocks, count(text, "</｜DSML｜ calls>"));
    EXPECT_EQ(count(text, "<tool_result>"), std::max(0, blocks - 1));
    calls += blocks == 2;
  }
  EXPECT_GT(thinking, 100);
  EXPECT_GT(calls, 30);
}

TEST(Dialogue, WritesAChatModeTurnExactly) {
  const DialogueGenerator generator(definitions(), RecallSplit::kTrain);
  std::set<std::string> texts;
  for (uint64_t seed = 0; seed < 3000; ++seed) texts.insert(text_of(generator.dialogue(seed)));
  EXPECT_TRUE(
      texts.count("<｜begin▁of▁sentence｜><｜User｜>Define a heap.<｜Assistant｜></think>"
                  "A heap is a tree of a kind.<｜end▁of▁sentence｜>"));
  EXPECT_GT(texts.size(), 2000u);
}

TEST(Dialogue, LossIsOnWhatTheAssistantWrites) {
  const Tokenizer tokenizer = byte_tokenizer();
  const DialogueGenerator generator(definitions(), RecallSplit::kTrain);
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const std::vector<DialoguePiece> pieces = generator.dialogue(seed);
    const TokenRow row = encode_dialogue(tokenizer, pieces);
    EXPECT_EQ(*tokenizer.decode_bytes(row.ids), text_of(pieces));
    std::string learned, wanted;
    for (size_t i = 0; i < row.ids.size(); ++i) {
      if (row.weights[i] == kReplyWeight) learned += tokenizer.token_bytes(row.ids[i]);
    }
    for (const DialoguePiece& piece : pieces) {
      if (piece.learned) wanted += piece.text;
    }
    EXPECT_EQ(learned, wanted);
    EXPECT_EQ(row.ids.front(), 0);
    EXPECT_EQ(row.ids.back(), 1);
  }
}

// The request that asks for the last reply of a conversation.
std::string request_of(const DialogueGenerator::Draft& draft) {
  const Conversation& talk = draft.conversation;
  std::string messages, tools;
  const auto add = [&](const std::string& message) {
    messages += (messages.empty() ? "" : ", ") + message;
  };
  if (!talk.system.empty()) {
    add("{\"role\": \"system\", \"content\": " + json_quoted(talk.system) + "}");
  }
  for (size_t i = 0; i < talk.turns.size(); ++i) {
    add("{\"role\": \"user\", \"content\": " + json_quoted(talk.turns[i].user) + "}");
    if (i + 1 == talk.turns.size()) break;
    add("{\"role\": \"assistant\", \"content\": " + json_quoted(talk.turns[i].reply) + "}");
  }
  if (const auto& turn = talk.turns.back(); turn.call) {
    std::string arguments;
    for (const ToolArgument& argument : turn.call->arguments) {
      arguments += (arguments.empty() ? "" : ", ") + json_quoted(argument.name) + ": " +
                   (argument.is_string ? json_quoted(argument.value) : argument.value);
    }
    add("{\"role\": \"assistant\", \"content\": \"\", \"reasoning_content\": " +
        json_quoted(turn.reasoning) +
        ", \"tool_calls\": [{\"id\": \"c\", \"type\": \"function\", \"function\": {\"name\": " +
        json_quoted(turn.call->tool) + ", \"arguments\": " + json_quoted("{" + arguments + "}") +
        "}}]}");
    add("{\"role\": \"tool\", \"tool_call_id\": \"c\", \"content\": " +
        json_quoted(turn.tool_result) + "}");
  }
  for (std::string schema : talk.schemas) {
    // No parameters at all: printed as {}, but a request leaves them out.
    const std::string none = ", \"parameters\": {}";
    if (schema.find(none) != schema.npos) schema.erase(schema.find(none), none.size());
    tools +=
        (tools.empty() ? "" : ", ") + ("{\"type\": \"function\", \"function\": " + schema + "}");
  }
  return "{\"model\": \"m\", \"messages\": [" + messages + "]" +
         (tools.empty() ? "" : ", \"tools\": [" + tools + "]") + ", \"thinking\": {\"type\": \"" +
         (draft.thinking ? "enabled" : "disabled") + "\"}}";
}

TEST(Dialogue, IsWhatTheChatTemplateRenders) {
  auto tools = parse_tools_template(small_model_tools_template());
  ASSERT_TRUE(tools) << tools.error().message;
  const ChatTemplate chat(std::move(*tools));
  const DialogueGenerator generator(definitions(), RecallSplit::kTrain);
  int with_calls = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    const DialogueGenerator::Draft draft = generator.draft(seed);
    auto request = parse_chat_request(request_of(draft));
    ASSERT_TRUE(request) << request.error().message << "\n" << request_of(draft);
    request->effort = draft.effort;
    auto prompt = chat.render(*request);
    ASSERT_TRUE(prompt) << prompt.error().message;
    const Turn& last = draft.conversation.turns.back();
    const std::string reasoning = last.call ? last.result_reasoning : last.reasoning;
    const std::string reply =
        (draft.thinking ? reasoning + "</think>" : "") + last.reply + "<｜end▁of▁sentence｜>";
    EXPECT_EQ(text_of(generator.dialogue(seed)), prompt->text.text + reply);
    with_calls += last.call.has_value();
  }
  EXPECT_GT(with_calls, 20);
}

// Numbers of 20 and more in a text.
std::set<int64_t> numbers_of(const std::string& text) {
  std::set<int64_t> numbers;
  for (size_t at = 0; (at = text.find_first_of("0123456789", at)) != text.npos;) {
    const size_t end = std::min(text.find_first_not_of("0123456789", at), text.size());
    numbers.insert(std::stoll(text.substr(at, end - at)));
    at = end;
  }
  return numbers;
}

TEST(Dialogue, SplitsUseDifferentNumbers) {
  const DialogueGenerator train(definitions(), RecallSplit::kTrain);
  const DialogueGenerator held(definitions(), RecallSplit::kHeldOut);
  std::set<int64_t> train_numbers, held_numbers;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    train_numbers.merge(numbers_of(text_of(train.dialogue(seed))));
    held_numbers.merge(numbers_of(text_of(held.dialogue(seed))));
  }
  int train_facts = 0, held_facts = 0;  // five digits: facts and pages
  for (int64_t number : train_numbers) {
    if (number < 20'000) continue;
    EXPECT_FALSE(number_is_held_out(number)) << number;
    ++train_facts;
  }
  for (int64_t number : held_numbers) {
    if (number < 20'000) continue;
    EXPECT_TRUE(number_is_held_out(number)) << number;
    ++held_facts;
  }
  EXPECT_GT(train_facts, 100);
  EXPECT_GT(held_facts, 100);
}

TEST(Dialogue, FindsDefinitions) {
  const std::vector<Definition> found = find_definitions(
      "A heap is a tree whose keys are ordered in a way. More text.\nThis is a bad one, said he.\n"
      "Mutex is an object that only one thread can hold at a time.\nlower is a thing that is "
      "not.\n");
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].term, "A heap");
  EXPECT_EQ(found[0].sentence, "A heap is a tree whose keys are ordered in a way.");
  EXPECT_EQ(found[1].term, "Mutex");
}

}  // namespace
}  // namespace fathom::train
