// From drafts of states to the arrays of a Grammar.

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "text/grammar_lowering.h"
#include "text/quote.h"

namespace fathom {
namespace {

template <typename T>
void feed(Sha256& hash, const std::vector<T>& values) {
  const uint64_t n = values.size();
  hash.update(std::as_bytes(std::span(&n, 1)));
  hash.update(std::as_bytes(std::span(values)));
}

}  // namespace

// States and rules that the root reaches, in the order of a breadth-first walk; state 0 is every
// one that accepts and goes nowhere.
void GrammarLowering::number(Grammar& grammar, uint32_t root) {
  std::vector<uint32_t> number_of(states_.size(), UINT32_MAX);
  std::vector<uint32_t> rule_number(rules_.size(), UINT32_MAX);
  std::vector<uint32_t> order = {UINT32_MAX};
  const auto state_number = [&](uint32_t s) {
    const Draft& draft = states_[s];
    if (draft.edges.empty() && draft.calls.empty()) return uint32_t{0};
    if (number_of[s] == UINT32_MAX) {
      number_of[s] = static_cast<uint32_t>(order.size());
      order.push_back(s);
    }
    return number_of[s];
  };
  const auto number_rule = [&](uint32_t r) {
    if (rule_number[r] == UINT32_MAX) {
      rule_number[r] = static_cast<uint32_t>(kept_rules_.size());
      kept_rules_.push_back(r);
      grammar.rules.push_back({.start = state_number(rules_[r].start)});
    }
    return rule_number[r];
  };
  grammar.root = number_rule(root);
  grammar.states.push_back({.accepts = true});
  for (size_t i = 1; i < order.size(); ++i) {
    const Draft& draft = states_[order[i]];
    grammar.states.push_back({.first_edge = static_cast<uint32_t>(grammar.edges.size()),
                              .first_call = static_cast<uint32_t>(grammar.calls.size()),
                              .accepts = draft.accepts});
    for (Grammar::Edge edge : draft.edges) {
      edge.target = state_number(edge.target);
      grammar.edges.push_back(edge);
    }
    for (Grammar::Call call : draft.calls) {
      call = {.rule = number_rule(call.rule), .target = state_number(call.target)};
      grammar.calls.push_back(call);
    }
  }
  grammar.states.push_back({.first_edge = static_cast<uint32_t>(grammar.edges.size()),
                            .first_call = static_cast<uint32_t>(grammar.calls.size())});
}

// Ranks: a rule comes before those that it can begin with.
Result<void> GrammarLowering::rank(Grammar& grammar) const {
  enum class Seen : uint8_t { kNo, kOpen, kDone };
  std::vector<Seen> seen(grammar.rules.size(), Seen::kNo);
  std::vector<uint32_t> done;
  std::vector<std::pair<uint32_t, size_t>> path;  // a rule and how many of its calls are done
  for (uint32_t first = 0; first < grammar.rules.size(); ++first) {
    if (seen[first] == Seen::kNo) path.emplace_back(first, 0);
    while (!path.empty()) {
      auto& [rule, n] = path.back();
      seen[rule] = Seen::kOpen;
      const auto calls = grammar.calls_of(grammar.rules[rule].start);
      if (n == calls.size()) {
        seen[rule] = Seen::kDone;
        done.push_back(rule);
        path.pop_back();
        continue;
      }
      const uint32_t next = calls[n++].rule;
      if (seen[next] == Seen::kOpen) {
        const std::string& name = from_.rules_[kept_rules_[next]].name;
        return invalid(where_ + ": wanted rules that do not begin with themselves, found " +
                       quote(name));
      }
      if (seen[next] == Seen::kNo) path.emplace_back(next, 0);
    }
  }
  grammar.rule_of_rank.assign(done.rbegin(), done.rend());
  for (uint32_t i = 0; i < grammar.rule_of_rank.size(); ++i) {
    grammar.rules[grammar.rule_of_rank[i]].rank = i;
  }
  return check_chains(grammar);
}

// A text enters all rules of a chain at once, and each may be left in another place: no budget of
// work lasts for a long one.
Result<void> GrammarLowering::check_chains(const Grammar& grammar) const {
  std::vector<int64_t> length(grammar.rules.size(), 1);
  for (const uint32_t rule : grammar.rule_of_rank) {
    if (length[rule] > kGrammarChainMax) {
      return invalid(where_ + ": wanted rules of which at most " +
                     std::to_string(kGrammarChainMax) +
                     " begin with one another in a row, found more at " +
                     quote(from_.rules_[kept_rules_[rule]].name));
    }
    for (const Grammar::Call& call : grammar.calls_of(grammar.rules[rule].start)) {
      length[call.rule] = std::max(length[call.rule], length[rule] + 1);
    }
  }
  return {};
}

void GrammarLowering::classify(Grammar& grammar) {
  const size_t n_symbols = kFirstMarker + grammar.markers.size();
  std::vector<bool> begins(n_symbols + 1);
  begins[0] = true;
  for (const Grammar::Edge& edge : grammar.edges) {
    begins[edge.low] = true;
    begins[edge.high + size_t{1}] = true;
  }
  for (size_t symbol = 0; symbol < n_symbols; ++symbol) {
    if (begins[symbol]) grammar.class_symbol.push_back(static_cast<uint16_t>(symbol));
    grammar.symbol_class.push_back(static_cast<uint16_t>(grammar.class_symbol.size() - 1));
  }
}

void GrammarLowering::digest(Grammar& grammar) {
  Sha256 hash;
  feed(hash, grammar.edges);
  feed(hash, grammar.calls);
  std::vector<uint32_t> numbers = {grammar.root};
  for (const Grammar::State& s : grammar.states) {
    numbers.insert(numbers.end(), {s.first_edge, s.first_call, uint32_t{s.accepts}});
  }
  for (const Grammar::Rule& r : grammar.rules) numbers.push_back(r.start);
  feed(hash, numbers);
  for (const std::string& marker : grammar.markers) {
    feed(hash, std::vector<char>(marker.begin(), marker.end()));
  }
  grammar.digest = hash.finish();
}

Result<Grammar> GrammarLowering::finish(uint32_t root) {
  Grammar grammar;
  grammar.markers = markers_;
  number(grammar, root);
  if (static_cast<int64_t>(grammar.edges.size() + grammar.calls.size()) > kGrammarEdgesMax) {
    return invalid(where_ + ": wanted a form of at most " + std::to_string(kGrammarEdgesMax) +
                   " edges, found one of more");
  }
  FATHOM_RETURN_IF_ERROR(rank(grammar));
  classify(grammar);
  digest(grammar);
  return grammar;
}

}  // namespace fathom
