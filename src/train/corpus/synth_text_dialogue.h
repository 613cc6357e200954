#pragma once

// Template dialogues in the chat format (spec/chat.md 4): greetings, who the model is, arithmetic
// with a few steps of reasoning, definitions taken from the documentation, small text tasks, recall
// inside a conversation, tool calls. They teach the format and short answers, nothing more.
//
// Everything follows from the seed. Train and held-out dialogues differ in their operands, names
// and values (recall_task.h); the templates are common.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"
#include "train/corpus/recall_task.h"

namespace fathom::train {

// A piece of rendered text. Marker pieces are the renderer's own and may hold added tokens; all
// other text is encoded without them. Learned pieces carry loss.
struct DialoguePiece {
  std::string text;
  bool marker = false;
  bool learned = false;
};

// "What is X?" pairs: sentences "X is a ..." of a text, at most 200 bytes each.
struct Definition {
  std::string term, sentence;
};
std::vector<Definition> find_definitions(std::string_view text);

struct ToolArgument {
  std::string name, value;
  bool is_string = true;
};

struct TemplateCall {
  std::string tool;
  std::vector<ToolArgument> arguments;
};

struct Turn {
  std::string user, reasoning, reply;
  std::optional<TemplateCall> call;  // before the reply
  std::string tool_result, result_reasoning;
};

struct Conversation {
  std::string system;                // may be empty
  std::vector<std::string> schemas;  // JSON, one a tool; empty: no tools
  std::vector<Turn> turns;
};

class DialogueGenerator {
 public:
  DialogueGenerator(std::vector<Definition> definitions, RecallSplit split);

  // One conversation, BOS to EOS.
  std::vector<DialoguePiece> dialogue(uint64_t seed) const;

  // The same before it is rendered.
  struct Draft {
    Conversation conversation;
    bool thinking = false;
    int effort = 0;
  };
  Draft draft(uint64_t seed) const;

 private:
  std::vector<Definition> definitions_;
  RecallSplit split_;
};

inline constexpr uint8_t kReplyWeight = 2;  // what the assistant says; all else has weight 0

TokenRow encode_dialogue(const Tokenizer& tokenizer, const std::vector<DialoguePiece>& pieces);

// The encoding/tools_template.txt of the small models (docs/formats/tools-template.md).
std::string small_model_tools_template();

}  // namespace fathom::train
