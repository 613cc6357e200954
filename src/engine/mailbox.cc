#include "engine/mailbox.h"

#include <algorithm>
#include <chrono>
#include <string>

namespace fathom {

const char* end_reason_name(EndReason reason) {
  switch (reason) {
    case EndReason::kNone:
      return "none";
    case EndReason::kStop:
      return "stop";
    case EndReason::kLength:
      return "length";
    case EndReason::kCancelled:
      return "cancelled";
    case EndReason::kDeadline:
      return "deadline";
    case EndReason::kError:
      return "error";
  }
  return "?";
}

Result<RequestId> Mailbox::submit(Request request) {
  const std::lock_guard lock(mutex_);
  if (closed_) return exhausted("queue: the server is going down and takes no more requests");
  const auto n_live = static_cast<int64_t>(live_.size());
  if (n_live >= limits_.max_live) {
    return exhausted("queue: wanted fewer than " + std::to_string(limits_.max_live) +
                     " requests, found " + std::to_string(n_live));
  }
  int64_t& of_tenant = live_of_tenant_[request.tenant];
  if (of_tenant >= limits_.max_live_of_tenant) {
    return exhausted("queue: wanted fewer than " + std::to_string(limits_.max_live_of_tenant) +
                     " requests of one tenant, found " + std::to_string(of_tenant));
  }
  ++of_tenant;
  if (live_.empty()) last_end_us_ = -1;  // the time without requests is nobody's
  const auto id = static_cast<RequestId>(++last_id_);
  live_.insert(id);
  inbox_.arrived.push_back({id, std::move(request)});
  to_engine_.notify_one();
  return id;
}

int64_t Mailbox::retry_us(TenantId tenant) const {
  const std::lock_guard lock(mutex_);
  if (closed_) return kRetryUsMax;
  const auto of_tenant = live_of_tenant_.find(tenant);
  const auto expected_us = static_cast<double>(status_.load.next_end_us);
  double wait_us = expected_us > 0 ? expected_us : pace_us_;
  if (of_tenant != live_of_tenant_.end() && of_tenant->second >= limits_.max_live_of_tenant) {
    // Of the requests that end, only the tenant's own make room for it.
    wait_us *= static_cast<double>(live_.size()) / static_cast<double>(of_tenant->second);
  }
  return static_cast<int64_t>(
      std::clamp(wait_us, static_cast<double>(kRetryUsMin), static_cast<double>(kRetryUsMax)));
}

void Mailbox::cancel(RequestId id) {
  const std::lock_guard lock(mutex_);
  if (live_.count(id) == 0) return;
  inbox_.cancelled.insert(id);
  to_engine_.notify_one();
}

Result<void> Mailbox::ask(const CacheOrder& order, CacheAnswer answer) {
  const std::lock_guard lock(mutex_);
  if (closed_) return exhausted("cache: the server is going down");
  inbox_.asked.push_back({order, std::move(answer)});
  to_engine_.notify_one();
  return {};
}

EngineStatus Mailbox::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

void Mailbox::tell(const EngineStatus& status) {
  const std::lock_guard lock(mutex_);
  status_ = status;
}

void Mailbox::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  to_engine_.notify_one();
}

std::vector<Output> Mailbox::take_outputs(size_t n, int64_t timeout_us) {
  std::unique_lock lock(mutex_);
  from_engine_.wait_for(lock, std::chrono::microseconds(timeout_us),
                        [&] { return !outputs_.empty(); });
  std::vector<Output> taken;
  while (!outputs_.empty() && taken.size() < n) {
    taken.push_back(std::move(outputs_.front()));
    outputs_.pop_front();
  }
  to_engine_.notify_one();
  return taken;
}

Mailbox::Inbox Mailbox::take_inbox(int64_t timeout_us) {
  std::unique_lock lock(mutex_);
  if (timeout_us > 0) {
    to_engine_.wait_for(lock, std::chrono::microseconds(timeout_us), [&] {
      return closed_ || !inbox_.arrived.empty() || !inbox_.cancelled.empty() ||
             !inbox_.asked.empty();
    });
  }
  return std::exchange(inbox_, {});
}

int64_t Mailbox::room() const {
  const std::lock_guard lock(mutex_);
  return limits_.max_outputs - static_cast<int64_t>(outputs_.size());
}

void Mailbox::put(Output output) {
  const std::lock_guard lock(mutex_);
  FATHOM_CHECK(static_cast<int64_t>(outputs_.size()) < limits_.max_outputs);
  outputs_.push_back(std::move(output));
  from_engine_.notify_one();
}

void Mailbox::finished(RequestId id, TenantId tenant, int64_t now_us) {
  const std::lock_guard lock(mutex_);
  FATHOM_CHECK(live_.erase(id) == 1);
  const auto of_tenant = live_of_tenant_.find(tenant);
  if (--of_tenant->second == 0) live_of_tenant_.erase(of_tenant);
  if (last_end_us_ >= 0) {
    const auto between_us = static_cast<double>(now_us - last_end_us_);
    pace_us_ = pace_us_ == 0 ? between_us : 0.8 * pace_us_ + 0.2 * between_us;
  }
  last_end_us_ = now_us;
}

int64_t Mailbox::n_live() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(live_.size());
}

int64_t Mailbox::n_outputs() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(outputs_.size());
}

bool Mailbox::closed() const {
  const std::lock_guard lock(mutex_);
  return closed_;
}

bool Mailbox::done() const {
  const std::lock_guard lock(mutex_);
  return closed_ && live_.empty() && inbox_.asked.empty();
}

}  // namespace fathom
