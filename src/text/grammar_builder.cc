#include "text/grammar_builder.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "text/grammar_lowering.h"
#include "text/markers.h"
#include "text/utf8.h"

namespace fathom {
namespace {

constexpr int64_t kManyStates = int64_t{1} << 40;  // sums of states stop growing here

// Length of the longest beginning of `text` that `seen` ends with.
template <typename Text>
uint32_t overlap(Text seen, const Text& text) {
  while (text.compare(0, seen.size(), seen) != 0) seen.erase(0, 1);
  return static_cast<uint32_t>(seen.size());
}

}  // namespace

GrammarBuilder::Expr GrammarBuilder::add(Node node) {
  if (nodes_.size() >= kGrammarPartsMax) {
    full_ = true;
    return Expr{};
  }
  for (const Expr part : node.parts) node.n_states += at(part).n_states;
  node.n_states = std::min(node.n_states, kManyStates);
  nodes_.push_back(std::move(node));
  return static_cast<Expr>(nodes_.size() - 1);
}

GrammarBuilder::Expr GrammarBuilder::nothing() { return choice({}); }

GrammarBuilder::Expr GrammarBuilder::empty() { return add({.kind = Kind::kEmpty}); }

GrammarBuilder::Expr GrammarBuilder::byte_range(uint8_t low, uint8_t high) {
  return add({.kind = Kind::kRange, .low = low, .high = high, .n_states = 1});
}

GrammarBuilder::Expr GrammarBuilder::bytes(std::string_view text) {
  std::vector<Expr> parts;
  for (const char c : text) {
    parts.push_back(byte_range(static_cast<uint8_t>(c), static_cast<uint8_t>(c)));
  }
  return sequence(std::move(parts));
}

GrammarBuilder::Expr GrammarBuilder::one_of(std::vector<std::string> texts) {
  std::ranges::sort(texts);
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  return branches(texts, 0);
}

// Sorted texts that are alike up to n_shared. One step goes as far as all of a branch are alike.
GrammarBuilder::Expr GrammarBuilder::branches(std::span<const std::string> texts, size_t n_shared) {
  std::vector<Expr> parts;
  if (!texts.empty() && texts[0].size() == n_shared) {
    parts.push_back(empty());
    texts = texts.subspan(1);
  }
  while (!texts.empty()) {
    const char first = texts[0][n_shared];
    const auto other = std::ranges::find_if(
        texts, [&](const std::string& text) { return text[n_shared] != first; });
    const auto branch = texts.first(static_cast<size_t>(other - texts.begin()));
    texts = texts.subspan(branch.size());
    const auto alike = std::ranges::mismatch(branch.front(), branch.back()).in1;
    const auto end = static_cast<size_t>(alike - branch.front().begin());
    const Expr step = bytes(std::string_view(branch.front()).substr(n_shared, end - n_shared));
    parts.push_back(branch.size() == 1 ? step : sequence({step, branches(branch, end)}));
  }
  return choice(std::move(parts));
}

GrammarBuilder::Expr GrammarBuilder::sequence(std::vector<Expr> parts) {
  if (parts.size() == 1) return parts[0];
  return add({.kind = Kind::kSequence, .parts = std::move(parts)});
}

GrammarBuilder::Expr GrammarBuilder::choice(std::vector<Expr> parts) {
  if (parts.size() == 1) return parts[0];
  const Kind kind = parts.empty() ? Kind::kNothing : Kind::kChoice;
  return add({.kind = kind, .parts = std::move(parts)});
}

// Copies of a large part are calls of one rule.
GrammarBuilder::Expr GrammarBuilder::hoisted(Expr part) {
  constexpr int64_t kSmall = 4;
  if (at(part).n_states <= kSmall) return part;
  const RuleId rule = declare("repetition");
  define(rule, part);
  return call(rule);
}

GrammarBuilder::Expr GrammarBuilder::repeat(Expr part, int64_t at_least, int64_t at_most) {
  const int64_t n = std::max(at_least, at_most);
  if (n > 1) part = hoisted(part);
  Node node = {.kind = Kind::kRepeat, .at_least = at_least, .at_most = at_most, .parts = {part}};
  node.n_states = n >= kManyStates ? kManyStates : (n + 1) * (at(part).n_states + 1);
  return add(std::move(node));
}

GrammarBuilder::Expr GrammarBuilder::automaton(uint32_t n_states, std::vector<Move> moves,
                                               std::vector<uint32_t> ends) {
  Node node = {.kind = Kind::kAutomaton,
               .index = static_cast<uint32_t>(automata_.size()),
               .n_states = n_states};
  for (const Move& move : moves) node.parts.push_back(move.part);
  automata_.push_back({n_states, std::move(moves), std::move(ends)});
  return add(std::move(node));
}

// The automaton of Knuth, Morris and Pratt: state n has seen the first n bytes of the text.
GrammarBuilder::Expr GrammarBuilder::until(const std::string& text) {
  const auto n_states = static_cast<uint32_t>(text.size() + 1);
  const Expr whole = marker(text);
  std::vector<Move> moves;
  for (uint32_t n = 0; n + 1 < n_states; ++n) {
    const auto target = [&](uint32_t byte) {
      return overlap(text.substr(0, n) + static_cast<char>(byte), text);
    };
    for (uint32_t low = 0; low < kFirstMarker;) {
      uint32_t next = low + 1;
      while (next < kFirstMarker && target(next) == target(low)) ++next;
      const Expr bytes = byte_range(static_cast<uint8_t>(low), static_cast<uint8_t>(next - 1));
      moves.push_back({n, target(low), bytes});
      low = next;
    }
    moves.push_back({n, n_states - 1, whole});
  }
  return automaton(n_states, std::move(moves), {n_states - 1});
}

// The same over characters; the moves to the whole text are left out.
GrammarBuilder::Expr GrammarBuilder::without(std::string_view text,
                                             const std::vector<std::string>& markers) {
  const std::u32string wide = utf8_characters(text);
  const auto n_states = static_cast<uint32_t>(wide.size());
  const auto after = [&](uint32_t n, char32_t c) { return overlap(wide.substr(0, n) + c, wide); };
  std::vector<Move> moves;
  std::vector<uint32_t> ends;
  for (uint32_t n = 0; n < n_states; ++n) {
    ends.push_back(n);
    std::vector<CharacterSet::Range> known;
    for (const char32_t c : std::set<char32_t>(wide.begin(), wide.end())) {
      const uint32_t to = after(n, c);
      if (to == 0) continue;
      known.emplace_back(c, c);
      if (to < n_states) moves.push_back({n, to, characters(CharacterSet({{c, c}}))});
    }
    moves.push_back({n, 0, characters(CharacterSet(std::move(known)).complement())});
    for (const std::string& name : markers) {
      uint32_t to = n;
      for (const char32_t c : utf8_characters(name)) {
        if (to < n_states) to = after(to, c);
      }
      if (to < n_states) moves.push_back({n, to, marker(name)});
    }
  }
  return automaton(n_states, std::move(moves), std::move(ends));
}

GrammarBuilder::Expr GrammarBuilder::marker(std::string text) {
  texts_.push_back(std::move(text));
  return add(
      {.kind = Kind::kMarker, .index = static_cast<uint32_t>(texts_.size() - 1), .n_states = 1});
}

// The parser of the answer is tolerant, so nothing is asked of what the block holds.
GrammarBuilder::Expr GrammarBuilder::calls_block() {
  const Expr mark = choice({marker(std::string(kDsmlText)), bytes(kDsmlText)});
  const Expr feeds = optional(bytes("\n\n"));
  const Expr open = sequence({bytes("<"), mark, bytes(std::string(kCallsTag) + ">")});
  const Expr rest = repeat(choice({byte_range(0, 255), marker(std::string(kDsmlText))}), 0, -1);
  return sequence({feeds, open, rest});
}

GrammarBuilder::RuleId GrammarBuilder::declare(std::string name) {
  rules_.push_back({.name = std::move(name)});
  return static_cast<RuleId>(rules_.size() - 1);
}

void GrammarBuilder::define(RuleId rule, Expr body) {
  rules_[static_cast<size_t>(rule)].body = body;
}

GrammarBuilder::Expr GrammarBuilder::call(RuleId rule) {
  return add({.kind = Kind::kCall, .index = static_cast<uint32_t>(rule), .n_states = 1});
}

// Code points of one length whose encodings share all but the last bytes are one sequence of byte
// ranges; a range is cut where that does not hold.
GrammarBuilder::Expr GrammarBuilder::utf8_range(char32_t low, char32_t high) {
  constexpr std::array<char32_t, 3> kLengthEnds = {0x7F, 0x7FF, 0xFFFF};
  for (const char32_t end : kLengthEnds) {
    if (low <= end && end < high) {
      return choice({utf8_range(low, end), utf8_range(end + 1, high)});
    }
  }
  for (const unsigned bits : {6U, 12U, 18U}) {
    const char32_t rest = (char32_t{1} << bits) - 1;
    if (high <= 0x7F || (low & ~rest) == (high & ~rest)) continue;
    if ((low & rest) != 0) {
      return choice({utf8_range(low, low | rest), utf8_range((low | rest) + 1, high)});
    }
    if ((high & rest) != rest) {
      return choice({utf8_range(low, (high & ~rest) - 1), utf8_range(high & ~rest, high)});
    }
  }
  std::string first;
  std::string last;
  utf8_append(&first, low);
  utf8_append(&last, high);
  std::vector<Expr> parts;
  for (size_t i = 0; i < first.size(); ++i) {
    parts.push_back(byte_range(static_cast<uint8_t>(first[i]), static_cast<uint8_t>(last[i])));
  }
  return sequence(std::move(parts));
}

GrammarBuilder::Expr GrammarBuilder::characters(const CharacterSet& set) {
  std::vector<Expr> parts;
  for (const auto& [low, high] : set.ranges()) parts.push_back(utf8_range(low, high));
  return choice(std::move(parts));
}

Result<Grammar> GrammarBuilder::finish(Expr root, const GrammarFrame& frame,
                                       const std::string& where) {
  if (frame.calls) root = choice({root, calls_block()});
  if (frame.thinking) {
    const Expr feeds = repeat(bytes("\n"), 0, 2);
    root = sequence({until(std::string(kThinkCloseText)), feeds, root});
  }
  const RuleId rule = declare("the text");
  define(rule, root);
  return GrammarLowering(*this, where).lower(static_cast<uint32_t>(rule));
}

}  // namespace fathom
