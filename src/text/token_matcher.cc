#include "text/token_matcher.h"

#include <algorithm>

#include "base/check.h"

namespace fathom {

TokenMatcher::TokenMatcher(const Grammar& grammar, const TokenTrie& tokens,
                           const MatcherLimits& limits)
    : machine_(grammar, limits.work),
      tokens_(tokens),
      limits_(limits),
      n_words_((static_cast<size_t>(tokens.n_tokens()) + 63) / 64),
      class_of_byte_(grammar.symbol_class.begin(), grammar.symbol_class.begin() + kFirstMarker),
      path_(size_t{1} + tokens.depth_max()) {
  for (const std::string& marker : grammar.markers) {
    marker_tokens_.push_back(tokens.added_token(marker));
  }
}

GrammarState TokenMatcher::at(Position position) {
  return {.can_end = machine_.complete(position),
          .can_go_on = machine_.open(position),
          .written = machine_.written(position),
          .epoch = epoch_,
          .position = position};
}

// What was found is forgotten, so that the next request begins within the bounds.
Error TokenMatcher::overflow() {
  machine_.clear();
  inside_.clear();
  masks_.clear();
  ++epoch_;
  return exhausted("grammar: wanted at most " + std::to_string(GrammarMachine::kPositionsMax) +
                   " positions, " + std::to_string(GrammarMachine::kItemsMax) +
                   " alternatives in one and " + std::to_string(limits_.work) +
                   " steps for a token, found more");
}

void TokenMatcher::trim() {
  machine_.begin_work();
  if (machine_.n_positions() > limits_.n_positions || machine_.n_items() > limits_.n_items) {
    static_cast<void>(overflow());
  }
  if ((masks_.size() + inside_.size()) * mask_bytes() <= limits_.mask_bytes) return;
  masks_.clear();
  inside_.clear();
}

TokenMatcher::Position TokenMatcher::resolve(const GrammarState& state) {
  trim();
  return state.epoch == epoch_ ? state.position : machine_.read(state.written);
}

Result<GrammarState> TokenMatcher::start() {
  trim();
  GrammarState state = at(machine_.start());
  if (machine_.overflowed()) return overflow();
  return state;
}

Result<bool> TokenMatcher::accept(GrammarState& state, TokenId token) {
  FATHOM_CHECK(token >= 0 && token < tokens_.n_tokens());
  Position position = resolve(state);
  if (tokens_.is_added(token)) {
    const auto marker = std::ranges::find(marker_tokens_, token);
    if (marker == marker_tokens_.end()) return false;
    const auto symbol = kFirstMarker + static_cast<size_t>(marker - marker_tokens_.begin());
    position = machine_.next(position, machine_.grammar().symbol_class[symbol]);
  } else {
    const std::string_view bytes = tokens_.bytes(token);
    if (bytes.empty()) return false;
    for (const char byte : bytes) {
      position = machine_.next(position, class_of_byte_[static_cast<uint8_t>(byte)]);
    }
  }
  if (machine_.overflowed()) return overflow();
  if (position == GrammarMachine::kDead) return false;
  GrammarState reached = at(position);
  if (machine_.overflowed()) return overflow();
  state = std::move(reached);
  return true;
}

// Allows the tokens below node `top` whose further bytes lead on from `from`.
void TokenMatcher::walk(uint32_t top, Position from, TokenMask& mask,
                        std::vector<uint32_t>* exits) {
  const std::vector<TokenTrie::Node>& nodes = tokens_.nodes();
  path_[nodes[top].depth] = from;
  const uint32_t end = nodes[top].end;
  size_t n_seen = 0;
  for (uint32_t i = top + 1; i < end; ++n_seen) {
    const TokenTrie::Node& node = nodes[i];
    const Position to = machine_.next(path_[node.depth - size_t{1}], class_of_byte_[node.byte]);
    if (to == GrammarMachine::kDead) {
      i = node.end;
      continue;
    }
    path_[node.depth] = to;
    const uint8_t flags = machine_.flags(to);
    if ((flags & GrammarMachine::kLeaves) != 0) exits->push_back(i);
    if (flags != GrammarMachine::kLeaves && node.token != kNoToken) mask_set(mask, node.token);
    i = (flags & GrammarMachine::kOpen) != 0 ? i + 1 : node.end;
  }
  machine_.count_steps(1 + n_seen);
}

const TokenMatcher::Inside& TokenMatcher::inside(Position above) {
  const auto [found, is_new] = inside_.try_emplace(above);
  if (is_new) {
    found->second.mask.resize(n_words_);
    walk(0, above, found->second.mask, &found->second.exits);
  }
  return found->second;
}

void TokenMatcher::add_exits(const Inside& inside, GrammarMachine::Entry entry, TokenMask& mask) {
  if (inside.exits.empty()) return;
  const Position below = machine_.below(entry);
  for (const uint32_t exit : inside.exits) {
    if (machine_.overflowed()) return;
    const TokenId token = tokens_.nodes()[exit].token;
    if (token != kNoToken) mask_set(mask, token);
    if (machine_.open(below)) walk(exit, below, mask, nullptr);
  }
}

TokenMask TokenMatcher::compute(Position position) {
  TokenMask mask(n_words_);
  const auto items = machine_.items(position);
  const std::vector<GrammarMachine::Item> own(items.begin(), items.end());
  for (auto first = own.begin(); first != own.end() && !machine_.overflowed();) {
    const auto last = std::find_if(first, own.end(),
                                   [&](const auto& item) { return item.entry != first->entry; });
    const Inside& part = inside(machine_.above_unknown({first, last}));
    for (size_t i = 0; i < n_words_; ++i) mask[i] |= part.mask[i];
    machine_.count_steps(n_words_);
    add_exits(part, first->entry, mask);
    first = last;
  }
  for (const auto& [smaller, larger] : tokens_.repeats()) {
    if (mask_has(mask, smaller)) mask_set(mask, larger);
  }
  for (size_t m = 0; m < marker_tokens_.size(); ++m) {
    const uint32_t symbol_class = machine_.grammar().symbol_class[kFirstMarker + m];
    if (marker_tokens_[m] == kNoToken) continue;
    if (machine_.next(position, symbol_class) != GrammarMachine::kDead) {
      mask_set(mask, marker_tokens_[m]);
    }
  }
  return mask;
}

Result<const TokenMask*> TokenMatcher::mask(const GrammarState& state) {
  const Position position = resolve(state);
  if (machine_.overflowed()) return overflow();
  const auto found = masks_.find(position);
  if (found != masks_.end()) {
    ++n_found_;
    return &found->second;
  }
  ++n_computed_;
  TokenMask mask = compute(position);
  if (machine_.overflowed()) return overflow();
  return &masks_.emplace(position, std::move(mask)).first->second;
}

}  // namespace fathom
