#include "text/grammar_machine.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/check.h"

namespace fathom {
namespace {

constexpr uint32_t kFinal = 0;  // the state of a grammar that accepts and goes nowhere

uint64_t mixed(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15U;
  return hash ^ (hash >> 32);
}

void make_set(std::vector<GrammarMachine::Item>& items) {
  std::ranges::sort(items);
  items.erase(std::unique(items.begin(), items.end()), items.end());
}

}  // namespace

uint32_t GrammarMachine::Sets::intern(std::span<const Item> items, uint8_t salt, bool* is_new) {
  uint64_t hash = salt;
  for (const Item& item : items) hash = mixed(hash, uint64_t{item.entry} << 32 | item.state);
  const auto [begin, end] = by_hash_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    *is_new = false;
    if (salts_[it->second] == salt && std::ranges::equal(of(it->second), items)) return it->second;
  }
  *is_new = true;
  const auto set = static_cast<uint32_t>(salts_.size());
  items_.insert(items_.end(), items.begin(), items.end());
  first_.push_back(items_.size());
  salts_.push_back(salt);
  by_hash_.emplace(hash, set);
  return set;
}

void GrammarMachine::Sets::clear() {
  items_.clear();
  first_.assign(1, 0);
  salts_.clear();
  by_hash_.clear();
}

GrammarMachine::GrammarMachine(const Grammar& grammar, int64_t work_max)
    : grammar_(grammar), n_classes_(grammar.class_symbol.size()), work_max_(work_max) {
  clear();
}

void GrammarMachine::clear() {
  entries_.clear();
  positions_.clear();
  flags_.clear();
  moves_.clear();
  expanded_.clear();
  below_.clear();
  overflowed_ = false;
  work_ = 0;
  bool is_new = false;
  // Two sets that no stack has hold the numbers of the entries with a meaning of their own.
  FATHOM_CHECK(entries_.intern({}, 1, &is_new) == kBottom);
  FATHOM_CHECK(entries_.intern({}, 2, &is_new) == kUnknown);
  FATHOM_CHECK(intern_position({}, 0) == kDead);
}

GrammarMachine::Position GrammarMachine::intern_position(std::vector<Item> items, uint8_t flags) {
  count_work(items.size());
  if (overflowed_ || items.size() > kItemsMax || flags_.size() >= kPositionsMax) {
    overflowed_ = true;
    return kDead;
  }
  if (!items.empty()) flags |= kOpen;
  bool is_new = false;
  const Position position = positions_.intern(items, flags, &is_new);
  if (!is_new) return position;
  flags_.push_back(flags);
  moves_.resize(moves_.size() + n_classes_, items.empty() ? kDead : kUnseen);
  expanded_.emplace_back();
  return position;
}

GrammarMachine::Entry GrammarMachine::intern_entry(std::vector<Item> items) {
  count_work(items.size());
  make_set(items);
  if (items.size() > kItemsMax || entries_.size() >= kPositionsMax) {
    overflowed_ = true;
    items.clear();  // an entry that nothing returns from
  }
  bool is_new = false;
  return entries_.intern(items, 0, &is_new);
}

GrammarMachine::Position GrammarMachine::start() {
  const uint32_t start = grammar_.rules[grammar_.root].start;
  const Grammar::State& state = grammar_.states[start];
  std::vector<Item> items;
  if (start != kFinal) items.push_back({.entry = kBottom, .state = start});
  return intern_position(std::move(items), state.accepts ? kComplete : uint8_t{0});
}

GrammarMachine::Position GrammarMachine::above_unknown(std::span<const Item> items) {
  std::vector<Item> above;
  for (const Item& item : items) above.push_back({.entry = kUnknown, .state = item.state});
  make_set(above);
  return intern_position(std::move(above), 0);
}

GrammarMachine::Position GrammarMachine::below(Entry entry) {
  const auto found = below_.find(entry);
  if (found != below_.end()) return found->second;
  const Position position = settle({{.entry = entry, .state = kFinal}});
  if (!overflowed_) below_.emplace(entry, position);
  return position;
}

// Where a rule may have ended, what it returns to is reached too.
GrammarMachine::Position GrammarMachine::settle(std::vector<Item> reached) {
  std::set<Item> seen(reached.begin(), reached.end());
  uint8_t flags = 0;
  std::vector<Item> kept;
  while (!reached.empty()) {
    const Item item = reached.back();
    reached.pop_back();
    if (item.state != kFinal) kept.push_back(item);
    if (!grammar_.states[item.state].accepts) continue;
    if (item.entry == kBottom) flags |= kComplete;
    if (item.entry == kUnknown) flags |= kLeaves;
    const std::span<const Item> callers = entries_.of(item.entry);
    for (const Item& back : callers) {
      if (seen.insert(back).second) reached.push_back(back);
    }
    count_work(callers.size());
    if (seen.size() <= kItemsMax && !overflowed_) continue;
    overflowed_ = true;
    return kDead;
  }
  std::ranges::sort(kept);
  return intern_position(std::move(kept), flags);
}

// A call at the end of a rule returns to where the rule itself returns to, so that rules which end
// with themselves do not pile up.
void GrammarMachine::return_to(std::vector<Item>& callers, const Item& caller) {
  if (caller.state != kFinal || caller.entry == kBottom || caller.entry == kUnknown) {
    callers.push_back(caller);
    return;
  }
  const std::span<const Item> below = entries_.of(caller.entry);
  count_work(below.size());
  if (!overflowed_) callers.insert(callers.end(), below.begin(), below.end());
}

// Rules are entered in the order of ranks: when one is, all its callers here are known.
std::span<const GrammarMachine::Item> GrammarMachine::expanded(Position p) {
  if (!expanded_[p].empty()) return expanded_[p];
  const std::span<const Item> own = positions_.of(p);
  std::vector<Item> all(own.begin(), own.end());
  std::map<uint32_t, std::vector<Item>> callers;  // by rank
  const auto call_all = [&](const Item& item) {
    for (const Grammar::Call& call : grammar_.calls_of(item.state)) {
      return_to(callers[grammar_.rules[call.rule].rank],
                {.entry = item.entry, .state = call.target});
    }
  };
  for (const Item& item : own) call_all(item);
  while (!callers.empty()) {
    const auto first = callers.begin();
    const uint32_t start = grammar_.rules[grammar_.rule_of_rank[first->first]].start;
    all.push_back({.entry = intern_entry(std::move(first->second)), .state = start});
    callers.erase(first);
    call_all(all.back());
    if (all.size() > kItemsMax) overflowed_ = true;
    if (overflowed_) break;
  }
  if (!overflowed_) expanded_[p] = all;
  if (overflowed_) return {};
  return expanded_[p];
}

GrammarMachine::Position GrammarMachine::move(Position from, uint32_t symbol_class) {
  if (overflowed_) return kDead;
  const uint32_t symbol = grammar_.class_symbol[symbol_class];
  std::vector<Item> reached;
  for (const Item& item : expanded(from)) {
    const std::span<const Grammar::Edge> edges = grammar_.edges_of(item.state);
    count_work(1 + edges.size() / 16);
    for (const Grammar::Edge& edge : edges) {
      if (symbol < edge.low || symbol > edge.high) continue;
      reached.push_back({.entry = item.entry, .state = edge.target});
    }
  }
  make_set(reached);
  const Position to = settle(std::move(reached));
  if (!overflowed_) moves_[from * n_classes_ + symbol_class] = to;
  return to;
}

// Entries by first mention, each after those below it: its size and its members.
std::vector<uint32_t> GrammarMachine::written(Position p) {
  std::map<Entry, uint32_t> number_of = {{kBottom, 0}, {kUnknown, 1}};
  std::vector<uint32_t> numbers = {flags_[p], 0};
  const auto put = [&](std::span<const Item> items) {
    count_work(1 + items.size());
    numbers.push_back(static_cast<uint32_t>(items.size()));
    for (const Item& item : items) {
      numbers.insert(numbers.end(), {number_of.at(item.entry), item.state});
    }
  };
  std::vector<Entry> work;
  for (const Item& item : positions_.of(p)) work.push_back(item.entry);
  while (!work.empty()) {
    if (overflowed_) return {};
    const Entry entry = work.back();
    if (number_of.contains(entry)) {
      work.pop_back();
      continue;
    }
    const size_t n = work.size();
    count_work(entries_.of(entry).size());
    for (const Item& item : entries_.of(entry)) {
      if (!number_of.contains(item.entry)) work.push_back(item.entry);
    }
    if (work.size() > n) continue;
    put(entries_.of(entry));
    number_of.emplace(entry, static_cast<uint32_t>(number_of.size()));
    ++numbers[1];
    work.pop_back();
  }
  put(positions_.of(p));
  return numbers;
}

GrammarMachine::Position GrammarMachine::read(std::span<const uint32_t> numbers) {
  std::vector<Entry> entries = {kBottom, kUnknown};
  size_t at = 2;
  const auto take = [&] {
    std::vector<Item> items(numbers[at++]);
    for (Item& item : items) {
      item = {.entry = entries[numbers[at]], .state = numbers[at + 1]};
      at += 2;
    }
    return items;
  };
  for (uint32_t i = 0; i < numbers[1]; ++i) entries.push_back(intern_entry(take()));
  std::vector<Item> items = take();
  std::ranges::sort(items);
  return intern_position(std::move(items),
                         static_cast<uint8_t>(numbers[0] & (kComplete | kLeaves)));
}

}  // namespace fathom
