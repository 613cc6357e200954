#pragma once

// Quota: what one tenant may still ask for. Two token buckets that hold a minute's worth (requests;
// tokens of prompts and answers) and a bound on requests at once.
//
// A request enters, is charged for the most that it may come to, and gives the rest back when it
// leaves. One that is larger than the bucket waits for a full one and leaves it in debt, so that
// long prompts are slowed down and not shut out.
// Time is an argument, in microseconds of any clock; one that goes back is taken to stand still.
// Thread rule: one quota, one thread.

#include <cstdint>
#include <optional>
#include <string>

namespace fathom {

inline constexpr int64_t kQuotaMax = 1'000'000'000;

// 0: no limit; at most kQuotaMax.
struct QuotaLimits {
  int64_t requests_per_minute = 0;
  int64_t tokens_per_minute = 0;
  int64_t concurrent_requests = 0;
  bool operator==(const QuotaLimits&) const = default;
};

class TokenBucket {
 public:
  explicit TokenBucket(int64_t per_minute) : per_minute_(per_minute), level_(full()) {}

  // Microseconds until n tokens can be taken; 0: they were taken.
  int64_t take(int64_t n, int64_t now_us);
  void give_back(int64_t n, int64_t now_us);

 private:
  int64_t full() const;
  void refill(int64_t now_us);

  int64_t per_minute_;
  int64_t level_;  // in tokens x microseconds of a minute: without fractions
  int64_t last_us_ = 0;
  bool started_ = false;
};

struct QuotaRefusal {
  std::string message;     // what was wanted and found, one line
  int64_t retry_us = 0;    // 0: when one of the tenant's requests has ended
  const char* limit = "";  // its name in the keys file
};

class Quota {
 public:
  explicit Quota(const QuotaLimits& limits);

  // Other limits from here on, with full buckets; the same ones change nothing. Requests that have
  // entered stay counted.
  void set_limits(const QuotaLimits& limits);

  // A request begins. A refused one has not.
  std::optional<QuotaRefusal> enter(int64_t now_us);
  // It may come to n_tokens. A refused one is to leave.
  std::optional<QuotaRefusal> charge(int64_t n_tokens, int64_t now_us);
  // It ends and came to `used` of the `charged` tokens; 0 and 0 where it was not charged.
  void leave(int64_t charged, int64_t used, int64_t now_us);

  int64_t n_entered() const { return n_entered_; }

 private:
  QuotaLimits limits_;
  TokenBucket requests_;
  TokenBucket tokens_;
  int64_t n_entered_ = 0;
};

}  // namespace fathom
