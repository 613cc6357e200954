#include "cache/state_tier.h"

#include <algorithm>

#include "base/check.h"
#include "tensor/kv_spec.h"

namespace fathom {

StateWanted states_wanted(const SessionQuery& query) {
  const auto n_keys = static_cast<int64_t>(query.keys.size());
  const int64_t first = std::clamp<int64_t>(query.min_tokens / kBlockTokens, 0, n_keys);
  StateWanted wanted = {.first_block = first,
                        .takes_bounded = query.takes_bounded,
                        .min_tokens = query.min_tokens,
                        .tenant_tag = tenant_tag(query.root)};
  for (int64_t n = first; n <= n_keys; ++n) {
    wanted.parents.push_back(n == 0 ? query.root : query.keys[static_cast<size_t>(n - 1)]);
  }
  const auto n_tokens = static_cast<int64_t>(query.tokens.size());
  const int64_t begin = std::min(first * kBlockTokens, n_tokens);
  // A state is less than a block behind its parent.
  const int64_t end = std::min((n_keys + 1) * kBlockTokens, n_tokens);
  wanted.tokens.assign(query.tokens.begin() + begin, query.tokens.begin() + std::max(begin, end));
  for (const ImageSpan& image : query.images) {
    if (image.begin + image.n_tokens > begin && image.begin < end) wanted.images.push_back(image);
  }
  return wanted;
}

std::optional<StateLabel> label_behind(const StateWanted& wanted, size_t i, int64_t n_partial,
                                       StateGrade grade) {
  FATHOM_CHECK(i < wanted.parents.size());
  FATHOM_CHECK(0 <= n_partial && n_partial < kBlockTokens);
  if (grade == StateGrade::kBounded && !wanted.takes_bounded) return std::nullopt;
  const size_t begin = i * static_cast<size_t>(kBlockTokens);
  const int64_t n_tokens =
      (wanted.first_block + static_cast<int64_t>(i)) * kBlockTokens + n_partial;
  if (begin + static_cast<size_t>(n_partial) > wanted.tokens.size()) return std::nullopt;
  if (n_tokens < wanted.min_tokens) return std::nullopt;
  const SessionName name = session_name(
      {.parent = wanted.parents[i],
       .grade = grade,
       .n_tokens = n_tokens,
       .partial_ids = std::span(wanted.tokens).subspan(begin, static_cast<size_t>(n_partial)),
       .images = wanted.images});
  return StateLabel{
      .name = name, .n_tokens = n_tokens, .grade = grade, .tenant_tag = wanted.tenant_tag};
}

}  // namespace fathom
