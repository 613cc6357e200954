#include "engine/grammar_store.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace fathom {

Result<void> GrammarCursor::begin(TokenMatcher& matcher, std::span<const int32_t> stop_ids) {
  matcher_ = &matcher;
  FATHOM_ASSIGN_OR_RETURN(state_, matcher.start());
  return find_mask(stop_ids);
}

Result<bool> GrammarCursor::accept(int32_t id) {
  FATHOM_ASSIGN_OR_RETURN(const bool taken, matcher_->accept(state_, id));
  FATHOM_CHECK(taken);  // whoever drew it had the mask
  return state_.can_go_on;
}

// A stop id ends the text whatever it spells.
Result<void> GrammarCursor::find_mask(std::span<const int32_t> stop_ids) {
  FATHOM_ASSIGN_OR_RETURN(const TokenMask* found, matcher_->mask(state_));
  mask_ = *found;
  for (const int32_t id : stop_ids) {
    const auto word = static_cast<size_t>(id) / 64;
    if (word >= mask_.size()) mask_.resize(word + 1);
    const uint64_t bit = uint64_t{1} << (static_cast<uint32_t>(id) % 64);
    mask_[word] = state_.can_end ? mask_[word] | bit : mask_[word] & ~bit;
  }
  if (std::ranges::any_of(mask_, [](uint64_t word) { return word != 0; })) return {};
  return not_found("grammar: wanted a token of the vocabulary that can follow, found none");
}

GrammarStore::Entry* GrammarStore::take(Grammar grammar) {
  FATHOM_CHECK(tokens_ != nullptr);
  const Sha256Digest digest = grammar.digest;
  auto found = entries_.find(digest);
  if (found == entries_.end()) {
    found = entries_.emplace(digest, std::make_unique<Entry>(std::move(grammar), *tokens_)).first;
  }
  Entry& entry = *found->second;
  ++entry.n_users;
  entry.last_use = ++n_uses_;
  return &entry;
}

void GrammarStore::give_back(Entry* entry) {
  if (entry == nullptr) return;
  --entry->n_users;
  const auto idle = [](const auto& item) { return item.second->n_users == 0; };
  while (static_cast<size_t>(std::ranges::count_if(entries_, idle)) > n_kept_) {
    auto oldest = entries_.end();
    for (auto it = entries_.begin(); it != entries_.end(); ++it) {
      const bool older =
          oldest == entries_.end() || it->second->last_use < oldest->second->last_use;
      if (idle(*it) && older) oldest = it;
    }
    entries_.erase(oldest);
  }
}

}  // namespace fathom
