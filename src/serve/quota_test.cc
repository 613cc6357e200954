// Goal: in no minute does a tenant get more than the bucket and a minute's refill, what was not
// used comes back, the time to try again is the first that works. Method: by hand, and a random
// run.
#include "serve/quota.h"

#include <gtest/gtest.h>

#include <deque>
#include <random>

namespace fathom {
namespace {

constexpr int64_t kSecondUs = 1'000'000;

TEST(TokenBucket, TheTimeItNamesIsTheFirstThatWorks) {
  std::mt19937_64 random(7);
  TokenBucket bucket(97);
  int64_t now_us = 5;
  int n_waits = 0;
  for (int i = 0; i < 2000; ++i) {
    const auto n = static_cast<int64_t>(random() % 60);
    const int64_t wait_us = bucket.take(n, now_us);
    if (wait_us > 0) {
      ++n_waits;
      TokenBucket early = bucket;
      EXPECT_GT(early.take(n, now_us + wait_us - 1), 0);
      EXPECT_EQ(bucket.take(n, now_us + wait_us), 0);
      now_us += wait_us;
    }
    now_us += static_cast<int64_t>(random() % (20 * kSecondUs));
  }
  EXPECT_GT(n_waits, 100);
}

TEST(TokenBucket, GivesInNoMinuteMoreThanTwoMinutesWorth) {
  std::mt19937_64 random(8);
  TokenBucket bucket(600);
  std::deque<std::pair<int64_t, int64_t>> taken;
  int64_t in_minute = 0;
  int64_t total = 0;
  int64_t now_us = 0;
  for (int i = 0; i < 20'000; ++i) {
    now_us += static_cast<int64_t>(random() % kSecondUs);
    const auto n = static_cast<int64_t>(random() % 40);
    if (bucket.take(n, now_us) > 0) continue;
    taken.emplace_back(now_us, n);
    in_minute += n;
    total += n;
    while (taken.front().first <= now_us - 60 * kSecondUs) {
      in_minute -= taken.front().second;
      taken.pop_front();
    }
    EXPECT_LE(in_minute, 1200);
  }
  EXPECT_LE(total, 600 + now_us * 10 / kSecondUs + 1);
  EXPECT_GE(total, now_us * 10 / kSecondUs - 40);
}

TEST(TokenBucket, AClockThatGoesBackStandsStill) {
  TokenBucket bucket(60);
  EXPECT_EQ(bucket.take(60, 100 * kSecondUs), 0);
  EXPECT_EQ(bucket.take(1, 1 * kSecondUs), kSecondUs);
  EXPECT_EQ(bucket.take(1, 100 * kSecondUs), kSecondUs);
  EXPECT_EQ(bucket.take(1, 101 * kSecondUs), 0);
}

TEST(TokenBucket, ARequestAboveItWaitsForAFullOneAndLeavesADebt) {
  TokenBucket bucket(60);
  EXPECT_EQ(bucket.take(90, 0), 0);
  EXPECT_EQ(bucket.take(1, 0), 31 * kSecondUs);
  EXPECT_EQ(bucket.take(90, 60 * kSecondUs), 30 * kSecondUs);
  EXPECT_EQ(bucket.take(90, 90 * kSecondUs), 0);
  bucket.give_back(1000, 90 * kSecondUs);  // never above full
  EXPECT_EQ(bucket.take(60, 90 * kSecondUs), 0);
  EXPECT_GT(bucket.take(1, 90 * kSecondUs), 0);
}

TEST(TokenBucket, LargestNumbersDoNotOverflow) {
  TokenBucket bucket(kQuotaMax);
  EXPECT_EQ(bucket.take(INT64_MAX, 0), 0);
  EXPECT_EQ(bucket.take(kQuotaMax, INT64_MAX), 0);
  EXPECT_EQ(bucket.take(kQuotaMax, INT64_MAX), 60 * kSecondUs);
}

TEST(Quota, WithoutLimitsNothingIsRefused) {
  Quota quota({});
  for (int i = 0; i < 1000; ++i) {
    EXPECT_FALSE(quota.enter(0));
    EXPECT_FALSE(quota.charge(kQuotaMax, 0));
  }
  EXPECT_EQ(quota.n_entered(), 1000);
}

TEST(Quota, BoundsRequestsAtOnceAndAMinute) {
  Quota quota({.requests_per_minute = 3, .concurrent_requests = 2});
  EXPECT_FALSE(quota.enter(0));
  EXPECT_FALSE(quota.enter(0));
  const auto third = quota.enter(0);
  ASSERT_TRUE(third);
  EXPECT_EQ(third->message, "concurrent_requests: wanted fewer than 2 of this key, found 2");
  EXPECT_EQ(third->retry_us, 0);
  quota.leave(0, 0, 0);
  EXPECT_FALSE(quota.enter(0));  // the refused one was not counted
  quota.leave(0, 0, 0);
  const auto fourth = quota.enter(kSecondUs);
  ASSERT_TRUE(fourth);
  EXPECT_EQ(fourth->message, "requests_per_minute: wanted at most 3 of this key, found more");
  EXPECT_EQ(fourth->retry_us, 19 * kSecondUs);
  EXPECT_EQ(quota.n_entered(), 1);
  EXPECT_FALSE(quota.enter(20 * kSecondUs));
}

TEST(Quota, OtherLimitsBeginFullAndTheSameOnesChangeNothing) {
  Quota quota({.requests_per_minute = 1, .concurrent_requests = 2});
  EXPECT_FALSE(quota.enter(0));
  EXPECT_TRUE(quota.enter(0));
  quota.set_limits({.requests_per_minute = 1, .concurrent_requests = 2});
  EXPECT_TRUE(quota.enter(0));
  quota.set_limits({.requests_per_minute = 5, .concurrent_requests = 2});
  EXPECT_FALSE(quota.enter(0));
  EXPECT_EQ(quota.n_entered(), 2);
  EXPECT_STREQ(quota.enter(0)->limit, "concurrent_requests");
  quota.leave(0, 0, 0);
  EXPECT_FALSE(quota.enter(0));
}

TEST(Quota, TokensAreChargedAtTheMostAndSettledByUse) {
  Quota quota({.tokens_per_minute = 1000});
  ASSERT_FALSE(quota.enter(0));
  EXPECT_FALSE(quota.charge(900, 0));
  ASSERT_FALSE(quota.enter(0));
  const auto refused = quota.charge(200, 0);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->message,
            "tokens_per_minute: wanted at most 1000 of this key, found a request of up to 200 "
            "beside what was used");
  EXPECT_EQ(refused->retry_us, 6 * kSecondUs);
  quota.leave(0, 0, 0);
  quota.leave(900, 100, 0);
  ASSERT_FALSE(quota.enter(0));
  EXPECT_FALSE(quota.charge(900, 0));
  EXPECT_TRUE(quota.charge(1, 0));
}

}  // namespace
}  // namespace fathom
