#include "train/corpus/synth_text_turns.h"

#include <algorithm>
#include <set>

namespace fathom::train {
namespace {

using Strings = std::vector<std::string>;

Turn plain(std::string user, std::string reasoning, std::string reply) {
  return {std::move(user), std::move(reasoning), std::move(reply), std::nullopt, {}, {}};
}

Turn greeting(SynthRng& rng) {
  static const Strings hello{"Hello",        "Hello!",         "Hi",           "Hi there",
                             "Hey",          "Good morning",   "Good evening", "Hi, how are you?",
                             "Hello there!", "Good afternoon", "hello",        "hi"};
  static const Strings answers{"Hello! How can I help you?", "Hi! What can I do for you?",
                               "Hello! What would you like to know?",
                               "Hi there! Ask me something short."};
  return plain(rng.pick(hello), "A greeting. I greet back.", rng.pick(answers));
}

Turn identity(SynthRng& rng) {
  static const Strings who{
      "Who are you?",      "What are you?",        "What is your name?", "Tell me about yourself.",
      "Are you a person?", "Which model are you?", "who are you",        "Introduce yourself."};
  static const Strings answers{
      "I am fathom's small model, a language model with about 34 million parameters.",
      "I am the small model that comes with fathom. I was trained on documentation and source "
      "code.",
      "I am a small language model, built and trained by the fathom project."};
  return plain(rng.pick(who), "The user asks who I am. I am fathom's small model.",
               rng.pick(answers));
}

Turn abilities(SynthRng& rng) {
  static const Strings asks{"What can you do?", "How can you help me?", "What are you good at?",
                            "Can you help me?", "What do you know?"};
  static const Strings answers{
      "I can continue text and code, find things in a long text, and answer short questions. I am "
      "small, so please check what I say.",
      "I can find a fact that stands in your text, do small sums, and continue code."};
  return plain(rng.pick(asks), "I say what I can do, and that I am small.", rng.pick(answers));
}

Turn unknown(SynthRng& rng) {
  static const Strings asks{"Who won the football match yesterday?",
                            "What will happen next year?",
                            "What is the weather like right now?",
                            "What did I eat this morning?",
                            "What is the price of gold today?",
                            "Who is my neighbour?",
                            "What time is it now?"};
  return plain(rng.pick(asks), "I cannot know this.",
               "I do not know. I am a small model without access to such facts.");
}

Turn thanks(SynthRng& rng) {
  static const Strings asks{"Thanks!",        "Thank you.", "Thank you very much!",
                            "Great, thanks.", "Bye!",       "Goodbye."};
  static const Strings answers{"You are welcome!", "Gladly! Goodbye.", "You are welcome. Goodbye!"};
  return plain(rng.pick(asks), "The user is polite. I answer politely.", rng.pick(answers));
}

int64_t draw_operand(SynthRng& rng, RecallSplit split, int64_t most) {
  for (;;) {
    const int64_t number = rng.between(0, most);
    if (number < 20 || number_is_held_out(number) == (split == RecallSplit::kHeldOut))
      return number;
  }
}

Turn arithmetic(SynthRng& rng, RecallSplit split) {
  const int64_t kind = rng.below(4);
  const int64_t most = kind == 2 ? 12 : rng.chance(60) ? 99 : 999;
  int64_t a = draw_operand(rng, split, most), b = draw_operand(rng, split, most);
  if (kind == 1 && a < b) std::swap(a, b);
  const std::string left = std::to_string(a), right = std::to_string(b);
  const char* sign = kind == 1 ? " - " : kind == 2 ? " * " : " + ";
  const int64_t value = kind == 1 ? a - b : kind == 2 ? a * b : a + b;
  const std::string sum = left + sign + right;
  static const Strings asks{"What is {}?", "Compute {}.", "How much is {}?",
                            "{}",          "{} = ?",      "Please calculate {}."};
  std::string user = rng.pick(asks);
  user.replace(user.find("{}"), 2, sum);
  std::string steps = sum + ".";
  if (kind == 0 || kind == 3) {
    const int64_t ones = a % 10 + b % 10;
    steps += " Ones: " + std::to_string(a % 10) + " + " + std::to_string(b % 10) + " = " +
             std::to_string(ones) + (ones > 9 ? ", carry 1." : ".") +
             " The rest: " + std::to_string(a / 10) + " + " + std::to_string(b / 10) +
             (ones > 9 ? " + 1" : "") + " = " + std::to_string(a / 10 + b / 10 + ones / 10) + ".";
  }
  return plain(user, steps, sum + " = " + std::to_string(value) + ".");
}

Turn definition(SynthRng& rng, const std::vector<Definition>& definitions) {
  const Definition& found = rng.pick(definitions);
  static const Strings asks{"What is {}?", "Define {}.", "What does {} mean?",
                            "Explain {} briefly.", "{}?"};
  std::string term = found.term;
  if (term.rfind("The ", 0) == 0 || term.rfind("A ", 0) == 0 || term.rfind("An ", 0) == 0) {
    term[0] = static_cast<char>(term[0] + 32);
  }
  std::string user = rng.pick(asks);
  user.replace(user.find("{}"), 2, term);
  return plain(user, "The user asks about " + term + ".", found.sentence);
}

Strings draw_words(SynthRng& rng, int count) {
  static const Strings words{"apple",  "stone",  "river",  "cloud",  "table",  "green",
                             "seven",  "light",  "paper",  "music",  "house",  "train",
                             "bread",  "water",  "north",  "small",  "quick",  "round",
                             "sugar",  "glass",  "tiger",  "ocean",  "piano",  "sheep",
                             "candle", "window", "garden", "winter", "yellow", "pencil"};
  std::set<std::string> chosen;
  Strings result;
  while (static_cast<int>(result.size()) < count) {
    const std::string& word = rng.pick(words);
    if (chosen.insert(word).second) result.push_back(word);
  }
  return result;
}

std::string join(const Strings& words, const char* separator) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : separator) + word;
  return text;
}

Turn text_task(SynthRng& rng) {
  Strings words = draw_words(rng, static_cast<int>(rng.between(2, 6)));
  const std::string list = join(words, ", ");
  switch (rng.below(5)) {
    case 0: {
      std::sort(words.begin(), words.end());
      return plain("Sort these words: " + list + ".",
                   "Sorted by letter: " + join(words, ", ") + ".", join(words, ", "));
    }
    case 1: {
      std::reverse(words.begin(), words.end());
      return plain("Write these words in reverse order: " + list + ".",
                   "From the last to the first.", join(words, ", "));
    }
    case 2:
      return plain("How many words are in this list: " + list + "?",
                   "I count: " + list + ". That is " + std::to_string(words.size()) + ".",
                   std::to_string(words.size()));
    case 3:
      return plain("Repeat after me: " + join(words, " ") + ".", "I repeat the words.",
                   join(words, " ") + ".");
    default:
      return plain("What is the first word of this list: " + list + "?",
                   "The first word is " + words[0] + ".", words[0]);
  }
}

std::string draw_held_number(SynthRng& rng, RecallSplit split) {
  for (;;) {
    const int64_t number = rng.between(10000, 99999);
    if (number_is_held_out(number) == (split == RecallSplit::kHeldOut))
      return std::to_string(number);
  }
}

// Facts in one message, a question about one of them at its end or in the next turn.
void add_recall(SynthRng& rng, RecallSplit split, std::vector<Turn>& turns) {
  const Strings names = draw_words(rng, static_cast<int>(rng.between(2, 6)));
  static const Strings forms{"The code of the {} is ", "My {} has the number ",
                             "{}: ", "Remember: {} = "};
  const std::string& form = rng.pick(forms);
  std::string facts;
  Strings values;
  for (const std::string& name : names) {
    std::string line = form;
    line.replace(line.find("{}"), 2, name);
    values.push_back(draw_held_number(rng, split));
    facts += line + values.back() + (rng.chance(50) ? ".\n" : "\n");
  }
  const auto asked = static_cast<size_t>(rng.below(static_cast<int64_t>(names.size())));
  const std::string question = "What is the number of the " + names[asked] + "?";
  const std::string reasoning = "The text says: " + names[asked] + " " + values[asked] + ".";
  if (rng.chance(50)) {
    turns.push_back(plain(facts + "\n" + question, reasoning, values[asked]));
  } else {
    turns.push_back(
        plain(facts, "The user gives me facts. I will remember them.", "I will remember that."));
    turns.push_back(plain(question, reasoning, values[asked]));
  }
}

Turn code_task(SynthRng& rng) {
  struct Sample {
    const char *name, *does, *python, *go;
  };
  static const std::vector<Sample> samples{
      {"add", "adds two numbers", "    return a + b", "\treturn a + b"},
      {"sub", "subtracts two numbers", "    return a - b", "\treturn a - b"},
      {"mul", "multiplies two numbers", "    return a * b", "\treturn a * b"},
      {"largest", "returns the larger of two numbers", "    return a if a > b else b",
       "\tif a > b {\n\t\treturn a\n\t}\n\treturn b"},
      {"smallest", "returns the smaller of two numbers", "    return a if a < b else b",
       "\tif a < b {\n\t\treturn a\n\t}\n\treturn b"}};
  const Sample& sample = rng.pick(samples);
  const bool go = rng.chance(40);
  const std::string name = sample.name;
  const std::string code =
      go ? "```go\nfunc " + name + "(a, b int) int {\n" + sample.go + "\n}\n```"
         : "```python\ndef " + name + "(a, b):\n" + sample.python + "\n```";
  return plain(
      std::string("Write a ") + (go ? "Go" : "Python") + " function that " + sample.does + ".",
      std::string("A short ") + (go ? "Go" : "Python") + " function.", code);
}

const Strings& cities() {
  static const Strings names{"Paris",  "Rome",   "Oslo",   "Lima",   "Cairo",
                             "Tokyo",  "Delhi",  "Quito",  "Brest",  "Dover",
                             "Prague", "Vienna", "Lisbon", "Madrid", "Berlin"};
  return names;
}

struct Tool {
  std::string name, schema;
};

const std::vector<Tool>& tools() {
  static const std::vector<Tool> all{
      {"get_weather",
       R"({"name": "get_weather", "description": "Weather of a city", "parameters": {"type": )"
       R"("object", "properties": {"city": {"type": "string"}}, "required": ["city"]}})"},
      {"add_numbers",
       R"({"name": "add_numbers", "description": "Adds two numbers", "parameters": {"type": )"
       R"("object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}, )"
       R"("required": ["a", "b"]}})"},
      {"search_docs",
       R"({"name": "search_docs", "description": "Searches the documentation", "parameters": )"
       R"({"type": "object", "properties": {"query": {"type": "string"}, "limit": )"
       R"({"type": "integer"}}, "required": ["query"]}})"},
      {"get_time", R"({"name": "get_time", "description": "Current time", "parameters": {}})"},
      {"read_file",
       R"({"name": "read_file", "description": "Reads a file", "parameters": {"type": "object", )"
       R"("properties": {"path": {"type": "string"}}, "required": ["path"]}})"}};
  return all;
}

Turn call_turn(SynthRng& rng, RecallSplit split, const std::string& tool) {
  Turn turn;
  turn.reasoning = "I use " + tool + ".";
  turn.result_reasoning = "The result is there.";
  turn.call = TemplateCall{tool, {}};
  std::vector<ToolArgument>& arguments = turn.call->arguments;
  if (tool == "get_weather") {
    const std::string& city = rng.pick(cities());
    const std::string degrees = std::to_string(rng.between(-10, 35));
    turn.user =
        rng.chance(50) ? "What is the weather in " + city + "?" : "Is it warm in " + city + "?";
    arguments.push_back({"city", city, true});
    turn.tool_result = degrees + " degrees";
    turn.reply = "In " + city + " it is " + degrees + " degrees.";
  } else if (tool == "add_numbers") {
    const int64_t a = draw_operand(rng, split, 9999), b = draw_operand(rng, split, 9999);
    turn.user = "Add " + std::to_string(a) + " and " + std::to_string(b) + ".";
    arguments.push_back({"a", std::to_string(a), false});
    arguments.push_back({"b", std::to_string(b), false});
    turn.tool_result = std::to_string(a + b);
    turn.reply = "The sum is " + turn.tool_result + ".";
  } else if (tool == "search_docs") {
    const std::string word = draw_words(rng, 1)[0];
    const std::string page = draw_held_number(rng, split);
    turn.user = "Find " + word + " in the documentation.";
    arguments.push_back({"query", word, true});
    if (rng.chance(40)) arguments.push_back({"limit", std::to_string(rng.between(1, 9)), false});
    turn.tool_result = word + ": page " + page;
    turn.reply = "I found " + word + " on page " + page + ".";
  } else if (tool == "get_time") {
    const std::string time =
        std::to_string(rng.between(10, 23)) + ":" + std::to_string(rng.between(10, 59));
    turn.user = "What time is it?";
    turn.tool_result = time;
    turn.reply = "It is " + time + ".";
  } else {
    const std::string name = draw_words(rng, 1)[0] + ".txt";
    const std::string inside = join(draw_words(rng, static_cast<int>(rng.between(2, 5))), " ");
    turn.user = "What is in the file " + name + "?";
    arguments.push_back({"path", name, true});
    turn.tool_result = inside;
    turn.reply = "The file says: " + inside;
  }
  return turn;
}

Turn any_turn(SynthRng& rng, RecallSplit split, const std::vector<Definition>& definitions) {
  const int64_t kind = rng.below(100);
  if (kind < 12) return greeting(rng);
  if (kind < 22) return identity(rng);
  if (kind < 28) return abilities(rng);
  if (kind < 33) return unknown(rng);
  if (kind < 55) return arithmetic(rng, split);
  if (kind < 75 && !definitions.empty()) return definition(rng, definitions);
  if (kind < 92) return text_task(rng);
  return code_task(rng);
}

}  // namespace

Conversation draw_conversation(SynthRng& rng, RecallSplit split,
                               const std::vector<Definition>& definitions) {
  static const Strings systems{"You are a helpful assistant.", "Answer briefly.",
                               "You are fathom's small model.", "Be short and exact.",
                               "You help programmers."};
  Conversation conversation;
  if (rng.chance(30)) conversation.system = rng.pick(systems);
  if (rng.chance(20)) {
    std::vector<Tool> offered = tools();
    rng.shuffle(offered);
    offered.resize(static_cast<size_t>(rng.between(1, 3)));
    for (const Tool& tool : offered) conversation.schemas.push_back(tool.schema);
    conversation.turns.push_back(rng.chance(75) ? call_turn(rng, split, rng.pick(offered).name)
                                                : any_turn(rng, split, definitions));
    return conversation;
  }
  if (rng.chance(25)) add_recall(rng, split, conversation.turns);
  const int64_t more = conversation.turns.empty() ? rng.between(1, 3) : rng.between(0, 1);
  for (int64_t i = 0; i < more; ++i) {
    conversation.turns.push_back(any_turn(rng, split, definitions));
  }
  if (rng.chance(15)) conversation.turns.push_back(thanks(rng));
  return conversation;
}

}  // namespace fathom::train
