#include "text/grammar_pattern.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "text/quote.h"

namespace fathom {

using Expr = GrammarBuilder::Expr;

namespace {

constexpr int kGroupsMax = 100;    // around one another
constexpr size_t kBytesShown = 8;  // of an expression

}  // namespace

Error PatternText::wrong(const std::string& wanted) const {
  if (done()) return wrong(wanted, "the end");
  const size_t line_end = std::min(text_.find('\n', at_), text_.size());
  const bool lines = places_ == Places::kLines;
  return wrong(wanted, quote(text_.substr(at_, lines ? line_end - at_ : kBytesShown)));
}

Error PatternText::wrong(const std::string& wanted, const std::string& found) const {
  const auto n_lines = std::ranges::count(text_.substr(0, at_), '\n');
  const std::string place = places_ == Places::kLines ? "line " + std::to_string(1 + n_lines)
                                                      : "byte " + std::to_string(at_);
  return invalid(where_ + ": " + place + ": wanted " + wanted + ", found " + found);
}

Result<Expr> PatternText::alternatives(const Read& terms) {
  std::vector<Expr> parts;
  do {
    FATHOM_ASSIGN_OR_RETURN(const Expr part, terms());
    parts.push_back(part);
  } while (take("|"));
  return builder_.choice(std::move(parts));
}

Result<Expr> PatternText::group(const Read& inner) {
  if (++n_groups_ > kGroupsMax) {
    return wrong("at most " + std::to_string(kGroupsMax) + " groups around one another", "more");
  }
  FATHOM_ASSIGN_OR_RETURN(const Expr expr, inner());
  --n_groups_;
  if (!take(")")) return wrong(")");
  return expr;
}

Result<Expr> PatternText::repeated(Expr part) {
  if (take("*")) return builder_.repeat(part, 0, -1);
  if (take("+")) return builder_.repeat(part, 1, -1);
  if (take("?")) return builder_.optional(part);
  if (!take("{")) return part;
  FATHOM_ASSIGN_OR_RETURN(const int64_t low, count());
  int64_t high = low;
  if (take(",")) {
    high = -1;
    if (!sees("}")) {
      FATHOM_ASSIGN_OR_RETURN(high, count());
    }
  }
  if (high >= 0 && high < low) return wrong("counts in order");
  if (!take("}")) return wrong("}");
  return builder_.repeat(part, low, high);
}

Result<int64_t> PatternText::count() {
  const size_t begin = at_;
  int64_t value = 0;
  for (; peek() >= '0' && peek() <= '9'; ++at_) {
    value = std::min(value * 10 + (peek() - '0'), kGrammarCountMax + 1);
  }
  if (at_ > begin && value <= kGrammarCountMax) return value;
  at_ = begin;
  return wrong("a count of at most " + std::to_string(kGrammarCountMax));
}

}  // namespace fathom
