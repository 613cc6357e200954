#pragma once

// GrammarMachine: positions in the texts of a grammar, found as they are reached and numbered.
//
// A position is a set of (state, entry): where a rule's automaton may stand, and what lies below it
// on the stack. An entry is a set of (return state, entry below). Both sets are interned, so equal
// ones have equal numbers. Moves are remembered. Numbers are valid until clear().
//
// Bounds: kPositionsMax positions and as many entries, kItemsMax members of one set, and work_max
// of work since begin_work(). Past them a move leads to kDead and overflowed() says so.
//
// Thread rule: one thread.

#include <cstdint>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "text/grammar.h"

namespace fathom {

class GrammarMachine {
 public:
  using Position = uint32_t;
  using Entry = uint32_t;
  struct Item {
    Entry entry = 0;
    uint32_t state = 0;
    auto operator<=>(const Item&) const = default;
  };

  static constexpr Position kDead = 0;
  static constexpr Entry kBottom = 0;   // nothing below: the text may end
  static constexpr Entry kUnknown = 1;  // whatever lies below: `leaves` says that it is reached
  static constexpr uint8_t kComplete = 1;
  static constexpr uint8_t kLeaves = 2;
  static constexpr uint8_t kOpen = 4;
  static constexpr size_t kPositionsMax = 32'768;
  static constexpr size_t kItemsMax = 4096;
  // Members that were looked at, and sixteenths of look-ups: some 15 ns each. A hundred times what
  // the largest of the usual forms take.
  static constexpr int64_t kWorkMax = 3'000'000;

  // The grammar outlives the machine.
  explicit GrammarMachine(const Grammar& grammar, int64_t work_max = kWorkMax);

  const Grammar& grammar() const { return grammar_; }
  Position start();
  Position next(Position from, uint32_t symbol_class) {
    const Position known = moves_[from * n_classes_ + symbol_class];
    return known != kUnseen ? known : move(from, symbol_class);
  }
  // What complete(), leaves() and open() say, at once.
  uint8_t flags(Position p) const { return flags_[p]; }
  bool complete(Position p) const { return (flags_[p] & kComplete) != 0; }  // the text may end
  bool leaves(Position p) const { return (flags_[p] & kLeaves) != 0; }
  bool open(Position p) const { return (flags_[p] & kOpen) != 0; }  // it may go on

  // Members of a position, by entry.
  std::span<const Item> items(Position p) const { return positions_.of(p); }
  // Where the states stand above an unknown stack.
  Position above_unknown(std::span<const Item> items);
  // Where a text stands whose part above `entry` has ended.
  Position below(Entry entry);

  bool overflowed() const { return overflowed_; }
  void begin_work() { work_ = 0; }
  // Steps of the caller's own, each a look-up.
  void count_steps(size_t n) { count_work(n / 16); }
  int64_t work() const { return work_; }
  size_t n_positions() const { return flags_.size(); }
  size_t n_items() const { return entries_.n_items() + positions_.n_items(); }  // that are kept
  void clear();

  // A position as numbers that outlive clear(), and back. None where a bound was passed.
  std::vector<uint32_t> written(Position p);
  Position read(std::span<const uint32_t> numbers);

 private:
  static constexpr Position kUnseen = UINT32_MAX;
  // Sets of items, each kept once.
  class Sets {
   public:
    // Sorted items without repeats; `salt` tells sets of equal items apart.
    uint32_t intern(std::span<const Item> items, uint8_t salt, bool* is_new);
    std::span<const Item> of(uint32_t set) const {
      return std::span(items_).subspan(first_[set], first_[set + 1] - first_[set]);
    }
    size_t size() const { return salts_.size(); }
    size_t n_items() const { return items_.size(); }
    void clear();

   private:
    std::vector<Item> items_;
    std::vector<size_t> first_ = {0};
    std::vector<uint8_t> salts_;
    std::unordered_multimap<uint64_t, uint32_t> by_hash_;
  };

  Position move(Position from, uint32_t symbol_class);
  Position settle(std::vector<Item> reached);
  Position intern_position(std::vector<Item> items, uint8_t flags);
  Entry intern_entry(std::vector<Item> items);
  std::span<const Item> expanded(Position p);
  void return_to(std::vector<Item>& callers, const Item& caller);
  void count_work(size_t n) {
    work_ += static_cast<int64_t>(n);
    if (work_ > work_max_) overflowed_ = true;
  }

  const Grammar& grammar_;
  size_t n_classes_;
  const int64_t work_max_;
  Sets entries_;
  Sets positions_;
  std::vector<uint8_t> flags_;
  std::vector<Position> moves_;
  // With the items that calls add, by position; empty until asked for.
  std::vector<std::vector<Item>> expanded_;
  std::unordered_map<Entry, Position> below_;
  bool overflowed_ = false;
  int64_t work_ = 0;
};

}  // namespace fathom
