#include "train/corpus/recall_task.h"

#include <algorithm>
#include <set>

#include "base/check.h"

namespace fathom::train {
namespace {

constexpr int kAnswerDigits = 5;
constexpr int kMinDistance = 100;  // tokens between a needle and its answer: outside the window

const std::vector<std::string>& first_words() {
  static const auto* words = new std::vector<std::string>{
      "amber",  "ancient", "brave",  "bright",  "calm",    "clever", "cold",   "copper",
      "coral",  "crimson", "dark",   "distant", "dusty",   "eager",  "early",  "empty",
      "fancy",  "fierce",  "gentle", "giant",   "golden",  "green",  "happy",  "hidden",
      "hollow", "honest",  "humble", "icy",     "iron",    "ivory",  "jolly",  "lazy",
      "little", "lonely",  "loud",   "lucky",   "marble",  "mellow", "misty",  "modern",
      "narrow", "noble",   "orange", "pale",    "patient", "plain",  "proud",  "purple",
      "quick",  "quiet",   "rapid",  "royal",   "rusty",   "sharp",  "silent", "silver",
      "simple", "sleepy",  "smooth", "solar",   "steady",  "stormy", "velvet", "wild"};
  return *words;
}

const std::vector<std::string>& second_words() {
  static const auto* words = new std::vector<std::string>{
      "anchor", "apple",   "arrow",  "badger",   "barrel", "basket",  "beacon",  "bridge",
      "bucket", "button",  "camel",  "candle",   "canyon", "castle",  "cedar",   "circle",
      "clock",  "cloud",   "comet",  "cradle",   "desert", "dragon",  "eagle",   "engine",
      "falcon", "feather", "forest", "fountain", "garden", "glacier", "hammer",  "harbor",
      "helmet", "island",  "jacket", "jungle",   "kettle", "ladder",  "lantern", "lemon",
      "magnet", "meadow",  "mirror", "mountain", "needle", "ocean",   "orchid",  "otter",
      "palace", "pencil",  "piano",  "planet",   "rabbit", "river",   "rocket",  "saddle",
      "spider", "temple",  "ticket", "tunnel",   "valley", "violin",  "window",  "wizard"};
  return *words;
}

uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 33)) * 0xFF51AFD7ED558CCDull;
  x = (x ^ (x >> 33)) * 0xC4CEB9FE1A85EC53ull;
  return x ^ (x >> 33);
}

std::string draw_key(SynthRng& rng, RecallSplit split) {
  for (;;) {
    std::string key = rng.pick(first_words()) + " " + rng.pick(second_words());
    if (key_is_held_out(key) == (split == RecallSplit::kHeldOut)) return key;
  }
}

std::string draw_number(SynthRng& rng, RecallSplit split, int digits) {
  int64_t low = 1;
  for (int i = 1; i < digits; ++i) low *= 10;
  for (;;) {
    const int64_t number = rng.between(low, low * 10 - 1);
    if (number_is_held_out(number) == (split == RecallSplit::kHeldOut))
      return std::to_string(number);
  }
}

struct Fact {
  std::string key, value;
};

std::vector<Fact> draw_facts(SynthRng& rng, RecallSplit split, int count, bool passkey) {
  std::set<std::string> keys;
  std::vector<Fact> facts;
  while (static_cast<int>(facts.size()) < count) {
    Fact fact{draw_key(rng, split), {}};
    if (!keys.insert(fact.key).second) continue;
    const bool word = !passkey && rng.chance(20);
    const int digits =
        passkey || rng.chance(60) ? kAnswerDigits : static_cast<int>(rng.between(3, 7));
    fact.value = word ? rng.pick(second_words()) : draw_number(rng, split, digits);
    facts.push_back(std::move(fact));
  }
  return facts;
}

std::string replace_all(std::string text, std::string_view what, std::string_view with) {
  for (size_t at = text.find(what); at != std::string::npos;
       at = text.find(what, at + with.size())) {
    text.replace(at, what.size(), with);
  }
  return text;
}

std::string identifier(const std::string& key, bool upper) {
  std::string name = replace_all(key, " ", "_");
  if (upper) {
    for (char& c : name) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c;
  }
  return name;
}

// A surface form: what stands before and after the value in a fact and in a question. "{k}" is the
// key, "{K}" the key as a constant's name, "{i}" as a variable's.
struct Form {
  const char* fact_head;
  const char* fact_tail;
  const char* question_head;
  const char* question_tail;
};

// The first form is that of the passkey measurement.
constexpr Form kProseForms[] = {{"The pass code of the {k} is ", ".\n",
                                 "Question: What is the pass code of the {k}?\nAnswer: ", "\n"},
                                {"Remember that the number of the {k} is ", ".\n",
                                 "The number of the {k}, as said before, is ", ".\n"},
                                {"Note: {k} = ", ".\n", "Recall: {k} = ", ".\n"}};
constexpr Form kCodeForms[] = {{"const {K}: u32 = ", ";\n", "assert_eq!({K}, ", ");\n"},
                               {"{K} = ", "\n", "assert {K} == ", "\n"},
                               {"\t{i} := ", "\n", "\tfmt.Println({i}) // prints ", "\n"},
                               {"#define {K} ", "\n", "static_assert({K} == ", ");\n"}};
constexpr Form kJsonForms[] = {
    {"{\"key\": \"{k}\", \"value\": ", "}\n", "{\"get\": \"{k}\", \"result\": ", "}\n"},
    {"{\"id\": \"{i}\", \"code\": ", "}\n", "{\"lookup\": \"{i}\", \"code\": ", "}\n"}};

const Form& draw_form(SynthRng& rng, bool passkey) {
  if (passkey) return kProseForms[0];
  const int64_t surface = rng.below(3);
  if (surface == 0) return kProseForms[rng.below(std::size(kProseForms))];
  if (surface == 1) return kCodeForms[rng.below(std::size(kCodeForms))];
  return kJsonForms[rng.below(std::size(kJsonForms))];
}

std::string fill_in(const char* pattern, const std::string& key) {
  std::string text = replace_all(pattern, "{k}", key);
  text = replace_all(std::move(text), "{K}", identifier(key, true));
  return replace_all(std::move(text), "{i}", identifier(key, false));
}

void append(TokenRow& row, const std::vector<TokenId>& ids, uint8_t weight) {
  row.ids.insert(row.ids.end(), ids.begin(), ids.end());
  row.weights.insert(row.weights.end(), ids.size(), weight);
}

class Writer {
 public:
  explicit Writer(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  std::vector<TokenId> encode(std::string_view text) const {
    return *tokenizer_.encode(text, AddedTokens::kIgnore);
  }

  // A value is quoted where the form wants an expression and the value is a word.
  TokenRow item(const Form& form, const Fact& fact, bool question) const {
    TokenRow row;
    append(row, encode(fill_in(question ? form.question_head : form.fact_head, fact.key)),
           kTextWeight);
    append(row, encode(fact.value), question ? kAnswerWeight : 0);
    append(row, encode(question ? form.question_tail : form.fact_tail), kTextWeight);
    return row;
  }

 private:
  const Tokenizer& tokenizer_;
};

// What weave puts together. The last tail_items stand together at the end; the others are spread
// over the filler up to its last `reserved` tokens.
struct Weave {
  std::vector<TokenRow> items;
  size_t tail_items = 0;
  int64_t n_tokens = 0;
  int64_t reserved = 0;
};

// Puts the items in order into filler so that the row has exactly n_tokens; gaps are at line ends.
Result<TokenRow> weave(const Filler& filler, SynthRng& rng, const Weave& plan) {
  const std::vector<TokenRow>& items = plan.items;
  const int64_t reserved = plan.reserved;
  int64_t fixed = 0;
  for (const TokenRow& item : items) fixed += static_cast<int64_t>(item.ids.size());
  const int64_t space = plan.n_tokens - fixed;
  FATHOM_CHECK(space >= 0);
  FATHOM_ASSIGN_OR_RETURN(const std::vector<TokenId> text, filler.cut(space, rng));
  std::vector<int64_t> stops{0};  // where an item may stand
  for (int64_t i = 0; i < space; ++i) {
    if (filler.ends_line(text[static_cast<size_t>(i)]) && i + 1 + reserved <= space) {
      stops.push_back(i + 1);
    }
  }
  const size_t spread = items.size() - plan.tail_items;
  std::vector<int64_t> places;
  for (size_t i = 0; i < spread; ++i) {
    const int64_t target = rng.below(std::max<int64_t>(1, space - reserved + 1));
    const auto stop = std::upper_bound(stops.begin(), stops.end(), target);
    places.push_back(*(stop - 1));
  }
  std::sort(places.begin(), places.end());
  TokenRow row;
  int64_t at = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    const int64_t place = i < spread ? places[i] : space;
    append(row, {text.begin() + at, text.begin() + place}, kTextWeight);
    row.ids.insert(row.ids.end(), items[i].ids.begin(), items[i].ids.end());
    row.weights.insert(row.weights.end(), items[i].weights.begin(), items[i].weights.end());
    at = place;
  }
  append(row, {text.begin() + at, text.end()}, kTextWeight);
  return row;
}

// Facts and questions in one order, every question after its fact.
std::vector<TokenRow> interleave(SynthRng& rng, const std::vector<TokenRow>& facts,
                                 const std::vector<std::pair<size_t, TokenRow>>& questions) {
  std::vector<std::pair<uint64_t, const TokenRow*>> order;
  std::vector<uint64_t> fact_time;
  for (const TokenRow& fact : facts) {
    fact_time.push_back(rng.next() >> 2);
    order.emplace_back(fact_time.back(), &fact);
  }
  for (const auto& [fact, question] : questions) {
    const uint64_t left = (uint64_t{1} << 62) - fact_time[fact];
    const uint64_t after = static_cast<uint64_t>(rng.below(1 << 20)) * (left >> 20);
    order.emplace_back(fact_time[fact] + 1 + after, &question);
  }
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<TokenRow> items;
  for (const auto& [time, item] : order) items.push_back(*item);
  return items;
}

}  // namespace

bool key_is_held_out(std::string_view key) {
  uint64_t hash = 0xCBF29CE484222325ull;
  for (unsigned char c : key) hash = (hash ^ c) * 0x100000001B3ull;
  return mix(hash) % 8 == 0;
}

bool number_is_held_out(int64_t number) { return mix(static_cast<uint64_t>(number)) % 8 == 0; }

Result<Filler> Filler::make(const Tokenizer& tokenizer, const std::vector<std::string>& documents,
                            std::string where) {
  Filler filler;
  filler.where_ = std::move(where);
  filler.line_end_.resize(static_cast<size_t>(tokenizer.vocab_size()));
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string_view bytes = tokenizer.token_bytes(id);
    filler.line_end_[static_cast<size_t>(id)] = !tokenizer.is_added(id) && bytes.ends_with('\n');
  }
  for (const std::string& document : documents) {
    FATHOM_ASSIGN_OR_RETURN(const std::vector<TokenId> ids,
                            tokenizer.encode(document, AddedTokens::kIgnore));
    filler.ids_.insert(filler.ids_.end(), ids.begin(), ids.end());
  }
  for (size_t i = 0; i < filler.ids_.size(); ++i) {
    if (filler.ends_line(filler.ids_[i])) filler.line_ends_.push_back(static_cast<int64_t>(i) + 1);
  }
  if (!filler.line_ends_.empty()) return filler;
  return invalid(filler.where_ + ": wanted text with lines, found " +
                 std::to_string(filler.tokens()) + " tokens, none of which ends one");
}

Result<std::vector<TokenId>> Filler::cut(int64_t count, SynthRng& rng) const {
  const auto first = std::lower_bound(line_ends_.begin(), line_ends_.end(), count);
  if (first == line_ends_.end()) {
    return invalid(where_ + ": wanted at least " + std::to_string(count) +
                   " tokens up to the end of a line, found " + std::to_string(line_ends_.back()));
  }
  const int64_t end = first[rng.below(line_ends_.end() - first)];
  return std::vector<TokenId>(ids_.begin() + (end - count), ids_.begin() + end);
}

Result<TokenRow> recall_row(const Tokenizer& tokenizer, const Filler& filler, int n_tokens,
                            uint64_t seed) {
  FATHOM_CHECK(n_tokens >= 200);
  SynthRng rng(seed * 2 + 1);
  const Writer writer(tokenizer);
  const bool passkey = rng.chance(30);
  const bool together = passkey || rng.chance(50);
  const Form& form = draw_form(rng, passkey);
  const int64_t most = std::min<int64_t>(20, n_tokens / 64);
  const int64_t wanted = passkey ? rng.between(1, 4) : rng.between(2, std::max<int64_t>(2, most));
  std::vector<TokenRow> facts;
  std::vector<std::pair<size_t, TokenRow>> questions;
  int64_t used = 0;
  for (const Fact& fact : draw_facts(rng, RecallSplit::kTrain, static_cast<int>(wanted), passkey)) {
    const TokenRow stated = writer.item(form, fact, false);
    const TokenRow asked = writer.item(form, fact, true);
    const int64_t times = rng.between(1, 2);
    const auto cost =
        static_cast<int64_t>(stated.ids.size()) + times * static_cast<int64_t>(asked.ids.size());
    if (used + cost > n_tokens * 7 / 10) break;
    used += cost;
    for (int64_t i = 0; i < times; ++i) questions.emplace_back(facts.size(), asked);
    facts.push_back(stated);
  }
  rng.shuffle(questions);
  std::vector<TokenRow> items;
  if (together) {
    items = facts;
    for (const auto& [fact, question] : questions) items.push_back(question);
  } else {
    items = interleave(rng, facts, questions);
  }
  return weave(filler, rng, {items, together ? questions.size() : 0, n_tokens, 0});
}

Result<NeedleCase> needle_case(const Tokenizer& tokenizer, const Filler& filler,
                               const NeedleOptions& options) {
  SynthRng rng(options.seed * 2);
  const Writer writer(tokenizer);
  const Form& form = kProseForms[0];
  const std::vector<Fact> facts = draw_facts(rng, RecallSplit::kHeldOut, options.n_facts, true);
  const auto asked = static_cast<size_t>(rng.below(options.n_facts));
  std::vector<TokenRow> items;
  for (const Fact& fact : facts) items.push_back(writer.item(form, fact, false));
  TokenRow question;
  append(question, writer.encode(fill_in(form.question_head, facts[asked].key)), kTextWeight);
  const auto question_tokens = static_cast<int64_t>(question.ids.size());
  items.push_back(std::move(question));

  NeedleCase result;
  result.key = facts[asked].key;
  result.value = facts[asked].value;
  result.answer = writer.encode(result.value);
  const auto prompt_tokens = options.context_tokens - static_cast<int64_t>(result.answer.size());
  const int64_t reserved = std::max<int64_t>(0, kMinDistance - question_tokens);
  int64_t needed = reserved;
  for (const TokenRow& item : items) needed += static_cast<int64_t>(item.ids.size());
  if (prompt_tokens < needed) {
    return invalid("needle: " + std::to_string(options.n_facts) + " facts: wanted at least " +
                   std::to_string(needed) + " tokens of prompt, found " +
                   std::to_string(prompt_tokens));
  }
  FATHOM_ASSIGN_OR_RETURN(const TokenRow row,
                          weave(filler, rng, {items, 1, prompt_tokens, reserved}));
  result.prompt = row.ids;
  const auto found =
      std::search(row.ids.begin(), row.ids.end(), items[asked].ids.begin(), items[asked].ids.end());
  FATHOM_CHECK(found != row.ids.end());
  result.fact_position = found - row.ids.begin();
  return result;
}

}  // namespace fathom::train
