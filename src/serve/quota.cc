#include "serve/quota.h"

#include <algorithm>

#include "base/check.h"

namespace fathom {
namespace {

constexpr int64_t kMinuteUs = 60'000'000;

// Below this in debt, nothing overflows.
int64_t bounded(int64_t n) { return std::clamp<int64_t>(n, 0, kQuotaMax); }

}  // namespace

int64_t TokenBucket::full() const { return per_minute_ * kMinuteUs; }

void TokenBucket::refill(int64_t now_us) {
  if (!started_) last_us_ = now_us;
  started_ = true;
  const int64_t passed_us = std::clamp<int64_t>(now_us - last_us_, 0, 2 * kMinuteUs);
  level_ = std::min(full(), level_ + passed_us * per_minute_);
  last_us_ = std::max(last_us_, now_us);
}

int64_t TokenBucket::take(int64_t n, int64_t now_us) {
  if (per_minute_ == 0) return 0;
  refill(now_us);
  const int64_t wanted = bounded(n) * kMinuteUs;
  const int64_t missing = std::min(wanted, full()) - level_;
  if (missing > 0) return (missing + per_minute_ - 1) / per_minute_;
  level_ -= wanted;
  return 0;
}

void TokenBucket::give_back(int64_t n, int64_t now_us) {
  if (per_minute_ == 0) return;
  refill(now_us);
  level_ = std::min(full(), level_ + bounded(n) * kMinuteUs);
}

Quota::Quota(const QuotaLimits& limits)
    : limits_(limits), requests_(limits.requests_per_minute), tokens_(limits.tokens_per_minute) {}

void Quota::set_limits(const QuotaLimits& limits) {
  if (limits == limits_) return;
  limits_ = limits;
  requests_ = TokenBucket(limits.requests_per_minute);
  tokens_ = TokenBucket(limits.tokens_per_minute);
}

std::optional<QuotaRefusal> Quota::enter(int64_t now_us) {
  const int64_t at_once = limits_.concurrent_requests;
  if (at_once > 0 && n_entered_ >= at_once) {
    return QuotaRefusal{.message = "concurrent_requests: wanted fewer than " +
                                   std::to_string(at_once) + " of this key, found " +
                                   std::to_string(n_entered_),
                        .limit = "concurrent_requests"};
  }
  const int64_t wait_us = requests_.take(1, now_us);
  if (wait_us > 0) {
    return QuotaRefusal{.message = "requests_per_minute: wanted at most " +
                                   std::to_string(limits_.requests_per_minute) +
                                   " of this key, found more",
                        .retry_us = wait_us,
                        .limit = "requests_per_minute"};
  }
  ++n_entered_;
  return std::nullopt;
}

std::optional<QuotaRefusal> Quota::charge(int64_t n_tokens, int64_t now_us) {
  const int64_t wait_us = tokens_.take(n_tokens, now_us);
  if (wait_us == 0) return std::nullopt;
  return QuotaRefusal{.message = "tokens_per_minute: wanted at most " +
                                 std::to_string(limits_.tokens_per_minute) +
                                 " of this key, found a request of up to " +
                                 std::to_string(n_tokens) + " beside what was used",
                      .retry_us = wait_us,
                      .limit = "tokens_per_minute"};
}

void Quota::leave(int64_t charged, int64_t used, int64_t now_us) {
  FATHOM_CHECK(n_entered_ > 0);
  --n_entered_;
  tokens_.give_back(bounded(charged) - bounded(used), now_us);
}

}  // namespace fathom
