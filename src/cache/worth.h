#pragma once

// What a block is worth keeping, the rule by which every tier finds what goes first: its base, as
// it was at the last use, and a gain. Source: docs/design.md section 5.
//
// Thread rule: that of whoever holds the rule.

#include <algorithm>

namespace fathom {

class WorthRule {
 public:
  virtual ~WorthRule() = default;

  // At a use; `floor` is the worth of what went last.
  virtual double base(double floor) const = 0;
  virtual double gain(double n_uses, double cost_per_byte) const = 0;
};

// GreedyDual-Size (Cherkasova 1998): recompute cost a byte, and the floor rises with every
// eviction, so that what was used long ago falls behind without a clock. Uses count up to kUsesMax:
// whether something was used again tells a conversation from a scan, but each turn is a use of all
// blocks before it, and of a conversation that is over many uses would outlast those that go on.
class RecomputeWorth final : public WorthRule {
 public:
  static constexpr double kUsesMax = 2;

  double base(double floor) const override { return floor; }
  double gain(double n_uses, double cost_per_byte) const override {
    return std::min(n_uses, kUsesMax) * cost_per_byte;
  }
};
inline const RecomputeWorth kRecomputeWorth{};

}  // namespace fathom
