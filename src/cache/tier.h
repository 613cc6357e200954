#pragma once

// Tier: a place behind the device's blocks where blocks of prefix-lifetime state are kept under
// their keys: host memory, a disk, a shared store.
//
// Whatever goes wrong in a tier is a miss: put() may drop, count() may promise what get() then does
// not find, and get() brings verified bytes or none. Nothing waits for a device: work that does is
// done by threads of the tier's own.
//
// Thread rule: all calls from the engine thread. Source: docs/design.md section 5.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "cache/block_key.h"

namespace fathom {

// A block beside its bytes.
struct TierBlock {
  BlockKey key;
  BlockKey parent;             // the root's key where first_position is 0
  int64_t first_position = 0;  // tokens before the block
  uint64_t tenant_tag = 0;     // the same for all blocks of a tenant; tells nothing about it
  StateGrade grade = StateGrade::kExact;
  double cost = 1.0;  // work to compute it again, in a unit that is one for the whole tier
};

enum class TierTicket : uint64_t {};

enum class TierStatus : uint8_t {
  kOk,       // the destination holds the bytes that were put under the key, verified
  kMissing,  // not there, or no longer
  kBad,      // what was there failed its checks; it is dropped and not found again
};

struct TierCompletion {
  TierTicket ticket = {};
  TierStatus status = TierStatus::kMissing;
};

struct TierCounters {
  // As of now.
  int64_t n_blocks = 0;
  int64_t payload_bytes = 0;
  int64_t held_bytes = 0;  // memory or disk that they take, headers and dead bytes included
  int64_t max_bytes = 0;   // the bound of held_bytes in force
  // Since the tier was opened.
  int64_t puts = 0;
  int64_t kept = 0;            // puts that became findable
  int64_t found_again = 0;     // puts of a key that was there
  int64_t dropped_full = 0;    // puts refused because the queue was full
  int64_t dropped_failed = 0;  // puts lost to a failure of the device, or of the one before
  int64_t gets = 0;
  int64_t hits = 0;
  int64_t misses = 0;
  int64_t bad = 0;  // verification failures, those of gets and of the tier's own reads
  int64_t evicted_size = 0;
  int64_t evicted_age = 0;
  int64_t forgotten = 0;
  int64_t put_payload_bytes = 0;  // of `kept`
  int64_t written_bytes = 0;      // to the device, for whatever reason; 0 for memory
  // Payload bytes by age: below 1, 6, 24, 72 hours, and older.
  std::array<int64_t, 5> bytes_by_age = {};
};

class Tier {
 public:
  Tier() = default;
  Tier(const Tier&) = delete;
  Tier& operator=(const Tier&) = delete;
  virtual ~Tier() = default;

  // Takes a copy of the bytes before it returns. False: dropped, and counted. Where the key is
  // there already this counts as a use of it. Found from when the tier has made it safe, not at
  // once.
  virtual bool put(const TierBlock& block, std::span<const std::byte> payload) = 0;

  // How many of the first keys are there, in a row. A few microseconds and 0.2 a key.
  virtual int64_t count(std::span<const BlockKey> keys) const = 0;

  // Begins to read a block into `payload`, whose size is the block's, and which stays until the
  // ticket was completed; it is written where the status is kOk alone. Nothing where too many reads
  // are under way: try again after a poll().
  virtual std::optional<TierTicket> get(const BlockKey& key, std::span<std::byte> payload) = 0;

  // Reads that ended, in any order, each once; waits up to timeout_us for the first.
  virtual std::vector<TierCompletion> poll(int64_t timeout_us = 0) = 0;

  // From now on it is not found. A read of it that is under way may still bring it, and its bytes
  // may stay where they are: this is no erasure.
  virtual void forget(const BlockKey& key) = 0;

  // Waits until everything that was put is safe, or dropped. For a drain and for tests.
  virtual void flush() = 0;

  virtual TierCounters counters() const = 0;
};

}  // namespace fathom
