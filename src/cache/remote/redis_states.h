#pragma once

// RedisStates: the StateTier on a server of the Redis protocol. A state is a record of the disk
// store's format (cache/store/record.h) under the hash of its name; beside it, under its parent, a
// bit for each place behind that block where some state was put. Both go after the time to live,
// which a use begins anew.
//
// Nothing that comes from there is believed before it was verified: a record carries identity,
// name, position, grade and checksums. After several failures in a row no attempt is made for a
// while. Thread rule: as a StateTier; two threads of its own, each with a connection, so that no
// find waits behind a put. Source: docs/design/tiers.md.

#include <memory>
#include <string>

#include "cache/remote/redis_address.h"
#include "cache/state_tier.h"
#include "cache/store/record.h"

namespace fathom {

struct RedisStatesOptions {
  RedisAddress address;
  // Whose states; `spec` names all that decides a state's bytes beside weights and keys, and
  // `block_bytes` is the most that a state has.
  StoreIdentity identity;
  int64_t ttl_us = 10 * 60'000'000;
  int64_t find_us = 50'000;                  // a find ends within it
  int64_t put_us = 1'000'000;                // an attempt to put ends within it
  int64_t queue_bytes = int64_t{256} << 20;  // of puts that wait
  int64_t max_finds = 256;                   // that wait or whose result nobody has taken
  int64_t failures_max = 3;                  // in a row, before attempts pause
  int64_t pause_us = 5'000'000;
};

class RedisStates : public StateTier {
 public:
  // Connects when there is something to do.
  explicit RedisStates(const RedisStatesOptions& options);
  // What waits to be put has another put_us to get there.
  ~RedisStates() override;

  bool put(const StateLabel& label, const SessionState& state) override;
  std::optional<TierTicket> find(StateWanted wanted) override;
  void cancel(TierTicket ticket) override;
  std::vector<FoundState> poll(int64_t timeout_us = 0) override;
  StateCounters counters() const override;

  // The last failure, one line; empty: none yet.
  std::string failure() const;
  // Waits until every put has ended one way or the other. For tests.
  void flush();

  // The names of a state and of the bits of its parent on the server. For tests.
  static std::string state_place(const StoreIdentity& identity, const StateLabel& label);
  static std::string index_place(const StoreIdentity& identity, const BlockKey& parent);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace fathom
