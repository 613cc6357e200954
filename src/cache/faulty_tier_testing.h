#pragma once

// FaultyTier: a tier in memory with virtual time, whose reads take long and come in any order, and
// which drops, loses and damages what it was given. For tests.

#include <cstring>
#include <map>
#include <random>
#include <utility>

#include "cache/host_tier.h"

namespace fathom {

struct TierFaults {
  double drop_rate = 0;  // of puts that say they were taken
  double lose_rate = 0;  // of reads: what was counted is not there
  double bad_rate = 0;   // of reads: a flipped bit
  double late_rate = 0;  // of reads: they take a thousand times the delay
  int64_t delay_us_max = 0;
  int64_t max_reads = 1 << 20;
  uint64_t seed = 0;
};

class FaultyTier final : public Tier {
 public:
  FaultyTier(int64_t max_bytes, const TierFaults& faults)
      : faults_(faults), kept_(max_bytes), random_(faults.seed) {}

  void set_time(int64_t now_us) { now_us_ = std::max(now_us_, now_us); }
  HostTier& kept() { return kept_; }
  int64_t n_reads() const { return static_cast<int64_t>(reads_.size()); }

  bool put(const TierBlock& block, std::span<const std::byte> payload) override {
    return happens(faults_.drop_rate) || kept_.put(block, payload);
  }

  int64_t count(std::span<const BlockKey> keys) const override { return kept_.count(keys); }

  std::optional<TierTicket> get(const BlockKey& key, std::span<std::byte> payload) override {
    if (n_reads() >= faults_.max_reads) return std::nullopt;
    if (happens(faults_.lose_rate)) kept_.forget(key);
    const std::span<std::byte> there = kept_.payload_of(key);
    if (!there.empty() && happens(faults_.bad_rate))
      there[random_() % there.size()] ^= std::byte{4};
    Read read = {.to = payload};
    read.bytes.resize(payload.size());
    kept_.get(key, read.bytes);
    read.status = kept_.poll().at(0).status;
    read.ticket = static_cast<TierTicket>(++last_ticket_);
    int64_t delay_us =
        static_cast<int64_t>(random_() % static_cast<uint64_t>(faults_.delay_us_max + 1));
    if (happens(faults_.late_rate)) delay_us *= 1000;
    const TierTicket ticket = read.ticket;
    reads_.emplace(now_us_ + delay_us, std::move(read));
    return ticket;
  }

  // Where it waits, its own time goes on.
  std::vector<TierCompletion> poll(int64_t timeout_us = 0) override {
    if (!reads_.empty() && reads_.begin()->first > now_us_) {
      now_us_ = std::min(now_us_ + timeout_us, reads_.begin()->first);
    }
    std::vector<TierCompletion> ended;
    while (!reads_.empty() && reads_.begin()->first <= now_us_) {
      const Read& read = reads_.begin()->second;
      if (read.status == TierStatus::kOk) {
        std::memcpy(read.to.data(), read.bytes.data(), read.bytes.size());
      }
      ended.push_back({read.ticket, read.status});
      reads_.erase(reads_.begin());
    }
    return ended;
  }

  void forget(const BlockKey& key) override { kept_.forget(key); }
  void flush() override {}
  TierCounters counters() const override { return kept_.counters(); }

 private:
  struct Read {
    TierTicket ticket = {};
    TierStatus status = TierStatus::kMissing;
    std::span<std::byte> to;
    std::vector<std::byte> bytes;
  };

  bool happens(double rate) {
    return static_cast<double>(random_() % 1'000'000) < rate * 1'000'000;
  }

  const TierFaults faults_;
  HostTier kept_;
  std::mt19937_64 random_;
  std::multimap<int64_t, Read> reads_;  // by the time at which they end
  uint64_t last_ticket_ = 0;
  int64_t now_us_ = 0;
};

}  // namespace fathom
