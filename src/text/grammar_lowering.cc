#include "text/grammar_lowering.h"

#include <algorithm>
#include <utility>

namespace fathom {

Result<void> GrammarLowering::check_sizes() const {
  if (from_.full()) {
    return invalid(where_ + ": wanted a form of at most " + std::to_string(kGrammarPartsMax) +
                   " parts, found one of more");
  }
  int64_t n_states = 0;
  for (const auto& rule : from_.rules_) n_states += from_.at(rule.body).n_states + 2;
  if (n_states <= kGrammarStatesMax) return {};
  return invalid(where_ + ": wanted a form of at most " + std::to_string(kGrammarStatesMax) +
                 " states, found one of more");
}

uint32_t GrammarLowering::new_state() {
  states_.emplace_back();
  return static_cast<uint32_t>(states_.size() - 1);
}

// Nothing is ever added that enters `begin` or leaves `end`, unless they are one state.
void GrammarLowering::place(Expr expr, uint32_t begin, uint32_t end) {
  const GrammarBuilder::Node& node = from_.at(expr);
  switch (node.kind) {
    case Kind::kNothing:
      return;
    case Kind::kEmpty:
      states_[begin].empties.push_back(end);
      return;
    case Kind::kRange:
      states_[begin].edges.push_back({.low = node.low, .high = node.high, .target = end});
      return;
    case Kind::kCall:
      states_[begin].calls.push_back({.rule = node.index, .target = end});
      return;
    case Kind::kAutomaton:
      return place_automaton(from_.automata_[node.index], begin, end);
    case Kind::kMarker: {
      const uint16_t symbol = marker_symbol(from_.texts_[node.index]);
      states_[begin].edges.push_back({.low = symbol, .high = symbol, .target = end});
      return;
    }
    case Kind::kChoice:
      for (const Expr part : node.parts) place(part, begin, end);
      return;
    case Kind::kRepeat:
      return place_repeat(node, begin, end);
    case Kind::kSequence:
      break;
  }
  uint32_t at = begin;
  for (size_t i = 0; i + 1 < node.parts.size(); ++i) {
    const uint32_t next = new_state();
    place(node.parts[i], at, next);
    at = next;
  }
  if (node.parts.empty()) {
    states_[at].empties.push_back(end);
  } else {
    place(node.parts.back(), at, end);
  }
}

void GrammarLowering::place_repeat(const GrammarBuilder::Node& node, uint32_t begin, uint32_t end) {
  const Expr part = node.parts[0];
  uint32_t at = begin;
  for (int64_t i = 0; i < node.at_least; ++i) {
    const uint32_t next = new_state();
    place(part, at, next);
    at = next;
  }
  if (node.at_most < 0) {
    const uint32_t loop = new_state();
    states_[at].empties.push_back(loop);
    place(part, loop, loop);
    at = loop;
  }
  for (int64_t i = node.at_least; i < node.at_most; ++i) {
    states_[at].empties.push_back(end);
    const uint32_t next = new_state();
    place(part, at, next);
    at = next;
  }
  states_[at].empties.push_back(end);
}

uint16_t GrammarLowering::marker_symbol(const std::string& text) {
  auto marker = std::ranges::find(markers_, text);
  if (marker == markers_.end()) marker = markers_.insert(markers_.end(), text);
  return static_cast<uint16_t>(kFirstMarker + static_cast<uint32_t>(marker - markers_.begin()));
}

void GrammarLowering::place_automaton(const GrammarBuilder::Automaton& automaton, uint32_t begin,
                                      uint32_t end) {
  const auto first = static_cast<uint32_t>(states_.size());
  for (uint32_t n = 0; n < automaton.n_states; ++n) new_state();
  states_[begin].empties.push_back(first);
  for (const auto& move : automaton.moves) place(move.part, first + move.from, first + move.to);
  for (const uint32_t n : automaton.ends) states_[first + n].empties.push_back(end);
}

// A rule may be empty where its end is reached from its start without a symbol. Each state is
// reached once, and each call followed once.
void GrammarLowering::find_nullable() {
  std::vector<uint32_t> rule_of_end(states_.size(), UINT32_MAX);
  std::vector<std::vector<Grammar::Call>> sites(rules_.size());  // of a rule: state and target
  std::vector<bool> reached(states_.size());
  std::vector<uint32_t> work;
  const auto reach = [&](uint32_t state) {
    if (!reached[state]) work.push_back(state);
    reached[state] = true;
  };
  for (uint32_t s = 0; s < states_.size(); ++s) {
    for (const Grammar::Call& call : states_[s].calls) {
      sites[call.rule].push_back({.rule = s, .target = call.target});
    }
  }
  for (uint32_t r = 0; r < rules_.size(); ++r) {
    rule_of_end[rules_[r].end] = r;
    reach(rules_[r].start);
  }
  while (!work.empty()) {
    const uint32_t state = work.back();
    work.pop_back();
    for (const uint32_t next : states_[state].empties) reach(next);
    for (const Grammar::Call& call : states_[state].calls) {
      if (rules_[call.rule].nullable) reach(call.target);
    }
    const uint32_t rule = rule_of_end[state];
    if (rule == UINT32_MAX) continue;
    rules_[rule].nullable = true;
    for (const Grammar::Call& site : sites[rule]) {
      if (reached[site.rule]) reach(site.target);
    }
  }
}

// Gives each state the edges and calls of all that it reaches without a symbol, and takes the empty
// moves away.
Result<void> GrammarLowering::remove_empties() {
  std::vector<Draft> closed(states_.size());
  std::vector<uint32_t> mark(states_.size(), UINT32_MAX);
  int64_t n_edges = 0;
  for (uint32_t s = 0; s < states_.size(); ++s) {
    std::vector<uint32_t> work = {s};
    mark[s] = s;
    const auto reach = [&](uint32_t state) {
      if (std::exchange(mark[state], s) != s) work.push_back(state);
    };
    while (!work.empty()) {
      const uint32_t at = work.back();
      work.pop_back();
      const Draft& draft = states_[at];
      closed[s].accepts |= draft.accepts;
      closed[s].edges.insert(closed[s].edges.end(), draft.edges.begin(), draft.edges.end());
      closed[s].calls.insert(closed[s].calls.end(), draft.calls.begin(), draft.calls.end());
      for (const uint32_t next : draft.empties) reach(next);
      for (const Grammar::Call& call : draft.calls) {
        if (rules_[call.rule].nullable) reach(call.target);
      }
      ++n_edges;
    }
    n_edges += static_cast<int64_t>(closed[s].edges.size() + closed[s].calls.size());
    if (n_edges <= 4 * kGrammarEdgesMax) continue;
    return invalid(where_ + ": wanted a form of at most " + std::to_string(kGrammarEdgesMax) +
                   " edges, found one of more");
  }
  states_ = std::move(closed);
  return {};
}

// A state is alive where a text can be ended from it; a rule where its start is.
void GrammarLowering::find_alive() {
  struct Back {
    uint32_t state = 0;
    uint32_t rule = UINT32_MAX;  // that must be alive
  };
  std::vector<std::vector<Back>> back(states_.size());
  std::vector<std::vector<Grammar::Call>> callers(rules_.size());  // of a rule: state and target
  std::vector<std::vector<uint32_t>> starts(states_.size());
  std::vector<uint32_t> work;
  for (uint32_t r = 0; r < rules_.size(); ++r) starts[rules_[r].start].push_back(r);
  const auto revive = [&](uint32_t s) {
    if (!std::exchange(states_[s].alive, true)) work.push_back(s);
  };
  for (uint32_t s = 0; s < states_.size(); ++s) {
    for (const Grammar::Edge& edge : states_[s].edges) back[edge.target].push_back({.state = s});
    for (const Grammar::Call& call : states_[s].calls) {
      back[call.target].push_back({.state = s, .rule = call.rule});
      callers[call.rule].push_back({.rule = s, .target = call.target});
    }
    if (states_[s].accepts) revive(s);
  }
  while (!work.empty()) {
    const uint32_t s = work.back();
    work.pop_back();
    for (const Back& from : back[s]) {
      if (from.rule == UINT32_MAX || rules_[from.rule].alive) revive(from.state);
    }
    for (const uint32_t r : starts[s]) {
      rules_[r].alive = true;
      for (const Grammar::Call& call : callers[r]) {
        if (states_[call.target].alive) revive(call.rule);
      }
    }
  }
}

void GrammarLowering::drop_dead() {
  for (Draft& draft : states_) {
    std::erase_if(draft.edges, [&](const auto& edge) { return !states_[edge.target].alive; });
    std::erase_if(draft.calls, [&](const auto& call) {
      return !states_[call.target].alive || !rules_[call.rule].alive;
    });
  }
}

// A call of a rule that has the empty text alone leads nowhere: it is passed over already.
void GrammarLowering::drop_idle_calls() {
  std::vector<std::vector<uint32_t>> beginners(rules_.size());  // rules that can begin with it
  std::vector<uint32_t> work;
  const auto wake = [&](uint32_t rule) {
    if (!std::exchange(rules_[rule].busy, true)) work.push_back(rule);
  };
  for (uint32_t r = 0; r < rules_.size(); ++r) {
    const Draft& start = states_[rules_[r].start];
    for (const Grammar::Call& call : start.calls) beginners[call.rule].push_back(r);
    if (!start.edges.empty()) wake(r);
  }
  while (!work.empty()) {
    const uint32_t rule = work.back();
    work.pop_back();
    for (const uint32_t r : beginners[rule]) wake(r);
  }
  for (Draft& draft : states_) {
    std::erase_if(draft.calls, [&](const auto& call) { return !rules_[call.rule].busy; });
  }
}

Result<Grammar> GrammarLowering::lower(uint32_t root) {
  FATHOM_RETURN_IF_ERROR(check_sizes());
  for (const auto& rule : from_.rules_) {
    const uint32_t start = new_state();
    const uint32_t end = new_state();
    states_[end].accepts = true;
    rules_.push_back({.start = start, .end = end});
    place(rule.body, start, end);
  }
  find_nullable();
  FATHOM_RETURN_IF_ERROR(remove_empties());
  find_alive();
  if (!rules_[root].alive) {
    return invalid(where_ + ": wanted a form that some text has, found one that none has");
  }
  drop_dead();
  drop_idle_calls();
  return finish(root);
}

}  // namespace fathom
