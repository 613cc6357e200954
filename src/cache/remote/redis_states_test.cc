// Goal: what one process puts another finds, byte for byte and under no other name; whatever the
// server does, a find ends in time with that state or with none, and it is counted why. Method: a
// real server, killed and started again, and a proxy that delays, cuts and spoils what it says.
#include "cache/remote/redis_states.h"

#include <gtest/gtest.h>

#include <random>

#include "base/clock.h"
#include "cache/remote/redis_link.h"
#include "cache/remote/redis_testing.h"
#include "tensor/kv_spec.h"

namespace fathom {
namespace {

constexpr int64_t kStateBytes = 200'000;
constexpr int64_t kShortUs = 100'000;    // where the server fails
constexpr int64_t kLongUs = 10'000'000;  // where it does not: a busy machine takes its time

StoreIdentity identity() { return {.weights = {1}, .spec = {2}, .block_bytes = kStateBytes}; }

SessionState state_of(uint32_t seed) {
  std::mt19937 random(seed);
  SessionState state;
  state.windows.resize(150'000 + random() % 1000);
  state.partial.resize(random() % 3 * 1000);
  for (std::byte& byte : state.windows) byte = static_cast<std::byte>(random());
  for (std::byte& byte : state.partial) byte = static_cast<std::byte>(random());
  return state;
}

bool same(const SessionState& a, const SessionState& b) {
  return a.windows == b.windows && a.partial == b.partial;
}

// A text and its keys.
struct Text {
  explicit Text(int64_t n, const std::string& salt = "", int32_t first = 0)
      : root(root_key({.tenant_salt = salt})), chain(root) {
    for (int64_t i = 0; i < n; ++i) tokens.push_back(first + static_cast<int32_t>(i));
    chain.extend(tokens, {});
  }
  StateLabel label(int64_t n, StateGrade grade = StateGrade::kExact) const {
    const auto n_full = static_cast<size_t>(n / kBlockTokens);
    const BlockKey parent = n_full == 0 ? root : chain.keys()[n_full - 1];
    const auto name =
        session_name({.parent = parent,
                      .grade = grade,
                      .n_tokens = n,
                      .partial_ids = std::span(tokens).subspan(
                          n_full * kBlockTokens, static_cast<size_t>(n % kBlockTokens))});
    return {.name = name, .n_tokens = n, .grade = grade, .tenant_tag = tenant_tag(root)};
  }
  StateWanted wanted(int64_t min_tokens = 0, bool takes_bounded = false) const {
    return states_wanted({.root = root,
                          .keys = chain.keys(),
                          .tokens = tokens,
                          .takes_bounded = takes_bounded,
                          .min_tokens = min_tokens});
  }

  BlockKey root;
  std::vector<int32_t> tokens;
  KeyChain chain;
};

class RedisStatesTest : public testing::Test {
 protected:
  void SetUp() override {
    if (redis_program().empty()) GTEST_SKIP() << "redis-server is not installed";
    server_ = std::make_unique<RedisServer>();
    proxy_ = std::make_unique<TcpProxy>(server_->port());
  }

  RedisStatesOptions options() const {
    return {.address = *parse_redis_url(proxy_->url()),
            .identity = identity(),
            .find_us = kLongUs,
            .put_us = kLongUs,
            .failures_max = 1 << 20};
  }

  // The state, where one came.
  std::optional<FoundState> find(RedisStates& states, StateWanted wanted) {
    const double begin_s = steady_seconds();
    const auto ticket = states.find(std::move(wanted));
    if (!ticket) return std::nullopt;
    std::vector<FoundState> found = states.poll(30'000'000);
    last_s_ = steady_seconds() - begin_s;
    EXPECT_EQ(found.size(), 1);
    if (found.empty() || !found[0].state) return std::nullopt;
    EXPECT_EQ(found[0].ticket, *ticket);
    return std::move(found[0]);
  }

  std::vector<RedisReply> direct(const RedisCommand& command) const {
    ignore_broken_pipes();
    RedisLink link(*parse_redis_url(server_->url()), 1 << 24);
    auto replies = link.run({&command, 1}, 5'000'000);
    EXPECT_TRUE(replies) << replies.error().message;
    return replies ? *replies : std::vector<RedisReply>(1);
  }

  std::unique_ptr<RedisServer> server_;
  std::unique_ptr<TcpProxy> proxy_;
  double last_s_ = 0;  // that the last find took
};

TEST_F(RedisStatesTest, AnotherProcessFindsTheStateBehindMostTokens) {
  const Text text(300);
  {
    RedisStates first(options());
    for (const int64_t n : {64, 128, 190, 210, 255}) {
      EXPECT_TRUE(first.put(text.label(n), state_of(static_cast<uint32_t>(n))));
    }
    first.flush();
    EXPECT_EQ(first.counters().kept, 5);
    EXPECT_EQ(first.counters().connects, 1);
  }
  RedisStates second(options());
  const auto found = find(second, text.wanted());
  ASSERT_TRUE(found) << second.failure();
  EXPECT_EQ(found->label, text.label(255));
  EXPECT_TRUE(same(*found->state, state_of(255)));
  // Of a prompt that parts within a block, the one before.
  Text other = text;
  other.tokens[200] = 999;
  other.chain = KeyChain(other.root);
  other.chain.extend(other.tokens, {});
  const auto before = find(second, other.wanted());
  ASSERT_TRUE(before);
  EXPECT_EQ(before->label.n_tokens, 190);
  EXPECT_TRUE(same(*before->state, state_of(190)));
  EXPECT_FALSE(find(second, other.wanted(191)));
  EXPECT_EQ(second.counters().hits, 2);
  EXPECT_EQ(second.counters().missing, 1);
  EXPECT_EQ(second.counters().hit_bytes, state_of(255).bytes() + state_of(190).bytes());
}

TEST_F(RedisStatesTest, GradesTenantsModelsAndSchedulesAreApart) {
  const Text text(100);
  RedisStates states(options());
  states.put(text.label(90, StateGrade::kBounded), state_of(1));
  states.put(text.label(80), state_of(2));
  states.flush();
  EXPECT_EQ(find(states, text.wanted())->label.n_tokens, 80);
  EXPECT_EQ(find(states, text.wanted(0, true))->label, text.label(90, StateGrade::kBounded));
  EXPECT_FALSE(find(states, Text(100, "another tenant").wanted(0, true)));
  for (const bool weights : {true, false}) {
    RedisStatesOptions other = options();
    (weights ? other.identity.weights : other.identity.spec) = {7};
    RedisStates foreign(other);
    EXPECT_FALSE(find(foreign, text.wanted(0, true)));
    EXPECT_EQ(foreign.counters().missing, 1);
  }
}

// Also where it stands under the right name, as after a mistake of the server's.
TEST_F(RedisStatesTest, ARecordOfAnotherNameOrModelIsBadAndRemoved) {
  const Text text(100);
  const Text foreign(100, "another tenant");
  RedisStates states(options());
  states.put(text.label(80), state_of(1));
  states.put(foreign.label(80), state_of(2));
  states.flush();
  const std::string mine = RedisStates::state_place(identity(), text.label(80));
  const std::string theirs = RedisStates::state_place(identity(), foreign.label(80));
  direct({"RENAME", theirs, mine});
  EXPECT_FALSE(find(states, text.wanted()));
  EXPECT_EQ(states.counters().bad, 1);
  EXPECT_EQ(direct({"EXISTS", mine})[0].number, 0);
  for (const char* bytes : {"", "x", "a state"}) {
    direct({"SET", mine, bytes});
    EXPECT_FALSE(find(states, text.wanted()));
  }
  EXPECT_EQ(states.counters().bad, 4);
  EXPECT_EQ(states.counters().hits, 0);
}

TEST_F(RedisStatesTest, EveryTurnedBitAndEveryCutIsFound) {
  const Text text(100);
  RedisStates states(options());
  states.put(text.label(80), state_of(1));
  states.flush();
  const std::string mine = RedisStates::state_place(identity(), text.label(80));
  const std::string sound = direct({"GET", mine})[0].bytes;
  std::mt19937 random(5);
  const size_t n_used = static_cast<size_t>(256 + 8 + state_of(1).bytes());
  for (int i = 0; i < 60; ++i) {
    std::string bytes = sound;
    if (i % 3 == 0) {
      bytes.resize(random() % n_used);
    } else {
      bytes[i % 3 == 1 ? random() % 256 : random() % n_used] ^=
          static_cast<char>(1 << random() % 8);
    }
    direct({"SET", mine, bytes});
    EXPECT_FALSE(find(states, text.wanted())) << i;
  }
  EXPECT_EQ(states.counters().bad, 60);
  direct({"SET", mine, sound});
  EXPECT_TRUE(find(states, text.wanted()));
}

TEST_F(RedisStatesTest, AStateGoesAfterItsTimeWhichAUseBeginsAnew) {
  const Text text(100);
  RedisStatesOptions brief = options();
  brief.ttl_us = 60'000'000;
  RedisStates states(brief);
  states.put(text.label(80), state_of(1));
  states.flush();
  const std::string mine = RedisStates::state_place(identity(), text.label(80));
  const std::string index = RedisStates::index_place(identity(), text.chain.keys()[0]);
  for (const std::string& place : {mine, index}) {
    EXPECT_GT(direct({"PTTL", place})[0].number, 50'000);
    EXPECT_LE(direct({"PTTL", place})[0].number, 60'000);
    direct({"PEXPIRE", place, "5000"});
  }
  EXPECT_TRUE(find(states, text.wanted()));
  for (const std::string& place : {mine, index}) {
    EXPECT_GT(direct({"PTTL", place})[0].number, 50'000);
  }
  direct({"DEL", mine});  // as when it expires; the bit stays
  EXPECT_FALSE(find(states, text.wanted()));
  EXPECT_EQ(states.counters().missing, 1);
  EXPECT_EQ(states.counters().failed, 0);
}

TEST_F(RedisStatesTest, AServerThatWasKilledIsFoundAgainEmpty) {
  const Text text(100);
  RedisStates states(options());
  states.put(text.label(80), state_of(1));
  states.flush();
  ASSERT_TRUE(find(states, text.wanted()));
  server_->stop();
  EXPECT_FALSE(find(states, text.wanted()));
  EXPECT_FALSE(find(states, text.wanted()));
  states.put(text.label(70), state_of(2));
  states.flush();
  EXPECT_EQ(states.counters().dropped_failed, 1);
  EXPECT_GE(states.counters().refusals, 3);
  ASSERT_TRUE(server_->start());
  EXPECT_FALSE(find(states, text.wanted()));
  EXPECT_EQ(states.counters().missing, 1);
  states.put(text.label(80), state_of(3));
  states.flush();
  const auto found = find(states, text.wanted());
  ASSERT_TRUE(found) << states.failure();
  EXPECT_TRUE(same(*found->state, state_of(3)));
}

class SpoiltRedis : public RedisStatesTest, public testing::WithParamInterface<ProxyMode> {};

TEST_P(SpoiltRedis, AFindEndsInTimeWithTheStateOrNone) {
  const Text text(100);
  const bool is_late = GetParam() == ProxyMode::kSlow || GetParam() == ProxyMode::kSilent ||
                       GetParam() == ProxyMode::kDrip;
  RedisStates sound(options());
  sound.put(text.label(80), state_of(1));
  sound.flush();
  RedisStatesOptions hurried = options();
  hurried.find_us = is_late ? kShortUs : 10 * kShortUs;
  RedisStates states(hurried);
  proxy_->set_mode(GetParam());
  for (int i = 0; i < 4; ++i) {
    const auto found = find(states, text.wanted());
    EXPECT_TRUE(!found || same(*found->state, state_of(1)));
    // The slow server's answer takes a second an exchange.
    EXPECT_LT(last_s_, static_cast<double>(hurried.find_us) * 1e-6 + 0.7);
  }
  const StateCounters spoilt = states.counters();
  EXPECT_EQ(spoilt.finds, spoilt.hits + spoilt.missing + spoilt.failed);
  EXPECT_EQ(spoilt.finds, 4);
  EXPECT_LT(spoilt.hits, 4);
  if (is_late) {
    EXPECT_EQ(spoilt.timeouts, 4);
  }
  if (GetParam() == ProxyMode::kList) {
    EXPECT_EQ(spoilt.protocol, 4);
  }
  proxy_->set_mode(ProxyMode::kPass);
  sound.put(text.label(80), state_of(4));
  sound.flush();
  std::optional<FoundState> found;
  for (int i = 0; i < 50 && !found; ++i) found = find(states, text.wanted());
  ASSERT_TRUE(found) << states.failure();
  EXPECT_TRUE(same(*found->state, state_of(4)));
}

INSTANTIATE_TEST_SUITE_P(Modes, SpoiltRedis,
                         testing::Values(ProxyMode::kSlow, ProxyMode::kSilent, ProxyMode::kDrip,
                                         ProxyMode::kGarbage, ProxyMode::kFlip, ProxyMode::kList));

TEST_F(RedisStatesTest, AfterFailuresInARowNothingIsTriedForAWhile) {
  const Text text(100);
  RedisStatesOptions with_pause = options();
  with_pause.failures_max = 3;
  with_pause.pause_us = 500'000;
  with_pause.find_us = kShortUs;
  RedisStates states(with_pause);
  states.put(text.label(80), state_of(1));
  states.flush();
  proxy_->set_mode(ProxyMode::kSilent);
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(find(states, text.wanted()));
  EXPECT_EQ(states.counters().timeouts, 3);
  const double begin_s = steady_seconds();
  EXPECT_FALSE(states.find(text.wanted()));
  EXPECT_FALSE(states.put(text.label(70), state_of(2)));
  EXPECT_EQ(states.counters().paused, 1);
  EXPECT_EQ(states.counters().dropped_paused, 1);
  proxy_->set_mode(ProxyMode::kPass);
  std::optional<FoundState> found;
  while (!found && steady_seconds() - begin_s < 30) found = find(states, text.wanted());
  ASSERT_TRUE(found) << states.failure();
  EXPECT_GT(steady_seconds() - begin_s, 0.4);
}

TEST_F(RedisStatesTest, ThePasswordIsAskedForAndNeverShown) {
  server_ = std::make_unique<RedisServer>("open sesame");
  const Text text(100);
  for (const bool knows : {true, false}) {
    RedisStatesOptions options = this->options();
    const std::string port = std::to_string(server_->port());
    const std::string login = knows ? ":open%20sesame@" : ":wrong-one@";
    options.address = *parse_redis_url("redis://" + login + "127.0.0.1:" + port + "/3");
    RedisStates states(options);
    states.put(text.label(80), state_of(1));
    states.flush();
    EXPECT_EQ(find(states, text.wanted()).has_value(), knows) << states.failure();
    EXPECT_EQ(states.counters().kept, knows ? 1 : 0);
    if (knows) continue;
    EXPECT_NE(states.failure().find("WRONGPASS"), std::string::npos) << states.failure();
    EXPECT_EQ(states.failure().find("wrong-one"), std::string::npos);
  }
}

TEST_F(RedisStatesTest, NobodyWaitsForAFullQueueOrACancelledFind) {
  const Text text(100);
  RedisStatesOptions small = options();
  small.queue_bytes = 3 * kStateBytes;
  small.max_finds = 2;
  small.find_us = kShortUs;
  small.put_us = kShortUs;
  RedisStates states(small);
  proxy_->set_mode(ProxyMode::kSilent);
  const double begin_s = steady_seconds();
  for (int i = 0; i < 20; ++i) states.put(text.label(80), state_of(1));
  const auto first = states.find(text.wanted());
  const auto second = states.find(text.wanted());
  EXPECT_TRUE(first && second);
  EXPECT_FALSE(states.find(text.wanted()));
  EXPECT_TRUE(states.poll().empty());
  states.cancel(*first);
  const auto third = states.find(text.wanted());
  EXPECT_TRUE(third);
  EXPECT_LT(steady_seconds() - begin_s, 1.5);  // 20 puts waited for would take 2 s
  EXPECT_GE(states.counters().dropped_full, 15);
  std::set<TierTicket> tickets;
  while (tickets.size() < 2) {
    for (const FoundState& found : states.poll(1'000'000)) tickets.insert(found.ticket);
  }
  EXPECT_EQ(tickets, (std::set<TierTicket>{*second, *third}));
}

}  // namespace
}  // namespace fathom
