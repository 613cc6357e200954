// Goal: a kept state is found by exactly the prompts whose first tokens it stands behind, never
// under another grade, root or image, and goes by room and by time in the stated order. Method:
// small cases by hand; random operations compared with a plain list after every step.
#include "cache/session_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tensor/kv_spec.h"

namespace fathom {
namespace {

constexpr int64_t kStateBytes = 100;
constexpr int64_t kTtl = 1000;

SessionState state_of(uint8_t stamp) {
  return {.windows = std::vector<std::byte>(kStateBytes, std::byte{stamp}), .partial = {}};
}

// A sequence of tokens with the keys of its full blocks.
struct Text {
  Text(std::vector<int32_t> ids, const std::string& salt, std::vector<ImageSpan> spans = {})
      : root(root_key({.tenant_salt = salt})),
        tokens(std::move(ids)),
        images(std::move(spans)),
        chain(root) {
    chain.extend(tokens, images);
  }

  SessionPlace place(int64_t n, StateGrade grade = StateGrade::kExact) const {
    const auto n_full = static_cast<size_t>(n / kBlockTokens);
    return {.parent = n_full == 0 ? root : chain.keys()[n_full - 1],
            .grade = grade,
            .n_tokens = n,
            .partial_ids = std::span(tokens).subspan(n_full * kBlockTokens,
                                                     static_cast<size_t>(n % kBlockTokens)),
            .images = images};
  }
  SessionQuery query(bool takes_bounded = false) const {
    return {.root = root,
            .keys = chain.keys(),
            .tokens = tokens,
            .images = images,
            .takes_bounded = takes_bounded};
  }

  BlockKey root;
  std::vector<int32_t> tokens;
  std::vector<ImageSpan> images;
  KeyChain chain;
};

std::vector<int32_t> counted(int64_t n, int32_t first = 0) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < n; ++i) ids.push_back(first + static_cast<int32_t>(i));
  return ids;
}

int64_t found_at(const SessionCache& cache, const SessionQuery& query) {
  const auto found = cache.find(query);
  return found ? found->n_tokens : -1;
}

TEST(SessionCache, FindsTheLongestStateBehindThePrompt) {
  SessionCache cache({.max_bytes = 1 << 20});
  const Text text(counted(200), "a");
  for (const int64_t n : {0, 5, 63, 64, 65, 127, 128, 150})
    cache.keep(text.place(n), state_of(1), 0);
  for (const auto& [n, want] : std::vector<std::pair<int64_t, int64_t>>{{200, 150},
                                                                        {150, 150},
                                                                        {149, 128},
                                                                        {128, 128},
                                                                        {127, 127},
                                                                        {126, 65},
                                                                        {64, 64},
                                                                        {63, 63},
                                                                        {62, 5},
                                                                        {4, 0}}) {
    EXPECT_EQ(found_at(cache, Text(counted(n), "a").query()), want) << n;
  }
  // Blocks that are not cached any more are not in the query: what stands behind them is not found.
  SessionQuery cut = text.query();
  cut.keys = cut.keys.first(1);
  EXPECT_EQ(found_at(cache, cut), 127);
  for (const auto& [least, want] :
       std::vector<std::pair<int64_t, int64_t>>{{127, 127}, {128, -1}, {129, -1}, {65, 127}}) {
    cut.min_tokens = least;
    EXPECT_EQ(found_at(cache, cut), want) << least;
  }
  cache.check();
}

TEST(SessionCache, OtherTokensRootsImagesAndGradesDoNotFindIt) {
  SessionCache cache({.max_bytes = 1 << 20});
  const std::vector<ImageSpan> image = {{.begin = 70, .n_tokens = 4, .digest = {1}}};
  const Text text(counted(100), "a", image);
  cache.keep(text.place(90), state_of(1), 0);
  EXPECT_EQ(found_at(cache, text.query()), 90);
  for (const size_t at : {0, 63, 64, 80, 89}) {
    Text other = text;
    other.tokens[at] = 999;
    EXPECT_EQ(found_at(cache, Text(other.tokens, "a", image).query()), -1) << at;
  }
  EXPECT_EQ(found_at(cache, Text(counted(100), "b", image).query()), -1);
  EXPECT_EQ(found_at(cache, Text(counted(100), "a").query()), -1);
  std::vector<ImageSpan> another = image;
  another[0].digest[0] = 2;
  EXPECT_EQ(found_at(cache, Text(counted(100), "a", another).query()), -1);
  cache.keep(text.place(95, StateGrade::kBounded), state_of(2), 0);
  EXPECT_EQ(found_at(cache, text.query()), 90);
  EXPECT_EQ(found_at(cache, text.query(true)), 95);
  cache.keep(text.place(95), state_of(3), 0);
  EXPECT_EQ(cache.find(text.query(true))->grade, StateGrade::kExact);
  EXPECT_EQ(cache.find(text.query(true))->state->windows[0], std::byte{3});
}

TEST(SessionCache, TheLeastRecentlyUsedGoesAndWhatWasOutgrownBeforeIt) {
  SessionCache cache({.max_bytes = 3 * kStateBytes, .ttl_us = kTtl});
  const Text text(counted(60), "a");
  const auto name = [&](int64_t n) { return session_name(text.place(n)); };
  const auto there = [&](int64_t n) { return found_at(cache, Text(counted(n), "a").query()) == n; };
  for (const int64_t n : {10, 20, 30}) cache.keep(text.place(n), state_of(1), 0);
  EXPECT_TRUE(cache.touch(name(10), 1));
  EXPECT_FALSE(cache.touch(name(11), 1));
  cache.keep(text.place(40), state_of(1), 1);
  EXPECT_FALSE(there(20));
  EXPECT_TRUE(there(10));
  cache.use(name(40), 1);
  cache.outgrow(name(40));
  cache.keep(text.place(50), state_of(1), 1);
  EXPECT_FALSE(there(40));
  EXPECT_TRUE(there(30));
  // Where two went on from, a third one may.
  for (int i = 0; i < 2; ++i) cache.use(name(30), 1);
  cache.outgrow(name(30));
  cache.keep(text.place(55), state_of(1), 1);
  EXPECT_TRUE(there(30));
  EXPECT_FALSE(there(10));
  SessionState large = state_of(1);
  large.partial.resize(3 * kStateBytes);
  cache.keep(text.place(58), std::move(large), 1);
  EXPECT_FALSE(there(58));
  EXPECT_EQ(cache.n_entries(), 3);
  EXPECT_EQ(cache.counters().evicted, 3);
  cache.check();
}

TEST(SessionCache, AnEntryGoesAfterItsTimeWithoutUse) {
  SessionCache cache({.max_bytes = 1 << 20, .ttl_us = kTtl});
  const Text text(counted(60), "a");
  cache.keep(text.place(10), state_of(1), 0);
  cache.keep(text.place(20), state_of(1), 500);
  cache.use(session_name(text.place(10)), 900);
  cache.expire(kTtl + 499);
  EXPECT_EQ(cache.n_entries(), 2);
  cache.expire(kTtl + 500);
  EXPECT_EQ(found_at(cache, text.query()), 10);
  cache.expire(kTtl + 900);
  EXPECT_EQ(cache.n_entries(), 0);
  EXPECT_EQ(cache.bytes(), 0);
  EXPECT_EQ(cache.counters().expired, 2);
}

TEST(SessionCache, ClearingDropsAllOrThoseOfOneOwner) {
  SessionCache cache({.max_bytes = 1 << 20});
  const Text text(counted(60), "a");
  for (const int64_t n : {10, 20, 30}) {
    SessionPlace place = text.place(n);
    place.owner = n == 20 ? 2 : 1;
    cache.keep(place, state_of(1), 0);
  }
  EXPECT_EQ(cache.clear(1), 2);
  EXPECT_EQ(found_at(cache, text.query()), 20);
  EXPECT_EQ(cache.bytes(), kStateBytes);
  cache.check();
  EXPECT_EQ(cache.clear(), 1);
  EXPECT_EQ(cache.counters().cleared, 3);
  EXPECT_EQ(cache.bytes(), 0);
  cache.check();
}

// A plain list of what is kept, in the order of going.
struct Kept {
  std::vector<int32_t> tokens;
  StateGrade grade = StateGrade::kExact;
  uint8_t stamp = 0;
  int64_t last_us = 0;
  int64_t n_uses = 0;
};

class Model {
 public:
  explicit Model(uint32_t seed) : random_(seed), cache_({kRoom * kStateBytes, kTtl}) {}

  void run(int n_steps) {
    for (int i = 0; i < n_steps; ++i) {
      now_us_ += below(200);
      cache_.expire(now_us_);
      std::erase_if(kept_, [&](const Kept& k) { return k.last_us + kTtl <= now_us_; });
      step();
      cache_.check();
      ASSERT_EQ(cache_.n_entries(), static_cast<int64_t>(kept_.size()));
    }
  }

 private:
  static constexpr int64_t kRoom = 6;

  int64_t below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint32_t>(n)); }

  // Few different ones, around block edges, so that many are beginnings of others.
  Text random_text() {
    std::vector<int32_t> ids = counted(61 + below(8) + (below(2) == 0 ? 64 : 0));
    if (below(2) == 0) ids[static_cast<size_t>(below(2) * 60)] = 999;
    return Text(ids, "a");
  }

  std::vector<Kept>::iterator find(const std::vector<int32_t>& tokens, StateGrade grade) {
    return std::ranges::find_if(
        kept_, [&](const Kept& k) { return k.tokens == tokens && k.grade == grade; });
  }

  void step() {
    const Text text = random_text();
    const StateGrade grade = below(3) == 0 ? StateGrade::kBounded : StateGrade::kExact;
    const auto n = static_cast<int64_t>(text.tokens.size());
    const SessionName name = session_name(text.place(n, grade));
    const auto known = find(text.tokens, grade);
    if (below(2) == 0) return look(text, grade == StateGrade::kBounded);
    if (below(4) == 0) {
      cache_.outgrow(name);
      if (known != kept_.end() && known->n_uses < 2) std::rotate(kept_.begin(), known, known + 1);
      return;
    }
    ASSERT_EQ(cache_.touch(name, now_us_), known != kept_.end());
    if (known != kept_.end()) return to_the_end(known);
    const auto stamp = static_cast<uint8_t>(below(256));
    cache_.keep(text.place(n, grade), state_of(stamp), now_us_);
    if (static_cast<int64_t>(kept_.size()) == kRoom) kept_.erase(kept_.begin());
    kept_.push_back({text.tokens, grade, stamp, now_us_, 0});
  }

  void look(const Text& text, bool takes_bounded) {
    SessionQuery query = text.query(takes_bounded);
    query.min_tokens = below(2) * (60 + below(12));
    const Kept* best = nullptr;
    for (const Kept& k : kept_) {
      const bool behind = k.tokens.size() <= text.tokens.size() &&
                          std::equal(k.tokens.begin(), k.tokens.end(), text.tokens.begin());
      if (static_cast<int64_t>(k.tokens.size()) < query.min_tokens) continue;
      if (!behind || (k.grade == StateGrade::kBounded && !takes_bounded)) continue;
      const auto rank = [](const Kept& of) {
        return std::pair(of.tokens.size(), of.grade == StateGrade::kExact);
      };
      if (best == nullptr || rank(k) > rank(*best)) best = &k;
    }
    const auto found = cache_.find(query);
    ASSERT_EQ(found.has_value(), best != nullptr);
    if (best == nullptr) return;
    EXPECT_EQ(found->n_tokens, static_cast<int64_t>(best->tokens.size()));
    EXPECT_EQ(found->grade, best->grade);
    EXPECT_EQ(found->state->windows[0], std::byte{best->stamp});
    cache_.use(found->name, now_us_);
    const auto used = find(best->tokens, best->grade);
    ++used->n_uses;
    to_the_end(used);
  }

  void to_the_end(std::vector<Kept>::iterator kept) {
    kept->last_us = now_us_;
    std::rotate(kept, kept + 1, kept_.end());
  }

  std::mt19937 random_;
  SessionCache cache_;
  std::vector<Kept> kept_;
  int64_t now_us_ = 0;
};

TEST(SessionCache, RandomOperationsAgreeWithAPlainList) {
  for (uint32_t seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Model(seed).run(300);
    if (testing::Test::HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace fathom
