#pragma once

// FaultyStateTier: a StateTier in memory with virtual time, whose finds take long, and which drops,
// loses and spoils what it was given. For tests.

#include <algorithm>
#include <map>
#include <random>
#include <utility>

#include "cache/state_tier.h"
#include "tensor/kv_spec.h"

namespace fathom {

struct StateFaults {
  double drop_rate = 0;   // of puts that say they were taken
  double lose_rate = 0;   // of finds: nothing comes of it
  double unfit_rate = 0;  // of finds: a state of another shape comes
  double pause_rate = 0;  // of finds: no attempt is made
  double late_rate = 0;   // of finds: they take a thousand times the delay
  int64_t delay_us_max = 0;
  int64_t ttl_us = int64_t{1} << 60;
  uint64_t seed = 0;
};

class FaultyStateTier final : public StateTier {
 public:
  explicit FaultyStateTier(const StateFaults& faults) : faults_(faults), random_(faults.seed) {}

  void set_time(int64_t now_us) { now_us_ = std::max(now_us_, now_us); }
  int64_t n_states() const { return static_cast<int64_t>(states_.size()); }
  // The process that asked is no more.
  void forget_finds() { finds_.clear(); }

  bool put(const StateLabel& label, const SessionState& state) override {
    ++counters_.puts;
    if (happens(faults_.drop_rate)) return true;
    ++counters_.kept;
    states_[label.name] = {label, state, now_us_};
    return true;
  }

  std::optional<TierTicket> find(StateWanted wanted) override {
    ++counters_.finds;
    if (happens(faults_.pause_rate)) return std::nullopt;
    Kept* best = happens(faults_.lose_rate) ? nullptr : best_of(wanted);
    FoundState found = {.ticket = static_cast<TierTicket>(++last_ticket_)};
    ++(best == nullptr ? counters_.missing : counters_.hits);
    if (best != nullptr) {
      best->used_us = now_us_;
      found.label = best->label;
      found.state = best->state;
      if (happens(faults_.unfit_rate)) spoil(*found.state);
    }
    int64_t delay_us =
        static_cast<int64_t>(random_() % static_cast<uint64_t>(faults_.delay_us_max + 1));
    if (happens(faults_.late_rate)) delay_us *= 1000;
    const TierTicket ticket = found.ticket;
    finds_.emplace(now_us_ + delay_us, std::move(found));
    return ticket;
  }

  void cancel(TierTicket ticket) override {
    std::erase_if(finds_, [&](const auto& entry) { return entry.second.ticket == ticket; });
  }

  // Where it waits, its own time goes on.
  std::vector<FoundState> poll(int64_t timeout_us = 0) override {
    if (!finds_.empty() && finds_.begin()->first > now_us_) {
      now_us_ = std::min(now_us_ + timeout_us, finds_.begin()->first);
    }
    std::vector<FoundState> ended;
    while (!finds_.empty() && finds_.begin()->first <= now_us_) {
      ended.push_back(std::move(finds_.begin()->second));
      finds_.erase(finds_.begin());
    }
    return ended;
  }

  StateCounters counters() const override { return counters_; }

 private:
  struct Kept {
    StateLabel label;
    SessionState state;
    int64_t used_us = 0;
  };

  bool happens(double rate) {
    return rate > 0 && static_cast<double>(random_() % 1'000'000) < rate * 1'000'000;
  }

  Kept* best_of(const StateWanted& wanted) {
    for (size_t i = wanted.parents.size(); i-- > 0;) {
      for (int64_t n_partial = kBlockTokens - 1; n_partial >= 0; --n_partial) {
        for (const StateGrade grade : {StateGrade::kExact, StateGrade::kBounded}) {
          const auto label = label_behind(wanted, i, n_partial, grade);
          const auto found = label ? states_.find(label->name) : states_.end();
          if (found == states_.end() || found->second.label != *label) continue;
          if (now_us_ - found->second.used_us < faults_.ttl_us) return &found->second;
        }
      }
    }
    return nullptr;
  }

  // Too short, a position that is none, or a partial block where none belongs and the other way.
  void spoil(SessionState& state) {
    const uint64_t kind = random_() % 3;
    if (kind == 0) {
      state.windows.pop_back();
    } else if (kind == 1) {
      state.windows[7] = std::byte{0x7f};
    } else {
      state.partial.resize(state.partial.empty() ? 100 : 0);
    }
  }

  const StateFaults faults_;
  std::mt19937_64 random_;
  std::map<SessionName, Kept> states_;
  std::multimap<int64_t, FoundState> finds_;  // by the time at which they end
  uint64_t last_ticket_ = 0;
  int64_t now_us_ = 0;
  StateCounters counters_;
};

}  // namespace fathom
