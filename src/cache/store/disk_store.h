#pragma once

// DiskStore: the tier on a local disk. One folder, one identity, one process. What it promises and
// how stands in docs/design/store.md.
//
// Thread rule: as a Tier; two threads of its own write and read. Destruction writes what was put.

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "cache/store/disk.h"
#include "cache/store/record.h"
#include "cache/tier.h"
#include "cache/worth.h"

namespace fathom {

struct StoreOptions {
  std::string folder;
  bool create = true;      // the folder may be missing; the one above it may not
  StoreIdentity identity;  // its seal is the folder's card's to say
  // Payloads are sealed with it on the disk; a store that is there must be, and with this one.
  std::optional<SecretKey> key;
  int64_t max_bytes = int64_t{64} << 30;  // of all files; at least four segments
  int64_t max_age_us = int64_t{72} * 3600 * 1'000'000;
  int64_t segment_bytes = int64_t{256} << 20;  // the most that one file has
  int64_t queue_bytes = int64_t{64} << 20;     // blocks that were put and are not yet safe
  int64_t max_reads = 16384;                   // reads that are asked for and have not ended
  int64_t pause_us = 5'000'000;                // puts are dropped after the disk refused to write
  DiskRoad road = DiskRoad::kBest;
  std::function<int64_t()> unix_us;  // the time of day; empty: the system's
  // Called with a line for each record that was read and is not what was put, on a thread of the
  // store; may be null.
  std::function<void(const std::string& line)> problem;
  Disk* disk = nullptr;              // in place of the system's, outlives the store; for tests
  const WorthRule* worth = nullptr;  // in place of its own, outlives the store; for measurements
};

// What opening found.
struct StoreReport {
  std::string road;            // how bytes travel
  bool index_rebuilt = false;  // it was lost, or unsound: index_fault
  std::string index_fault;
  int64_t n_rows = 0;              // records that the index brought
  int64_t n_adopted = 0;           // records of segments that the index did not have
  int64_t n_lost = 0;              // rows whose bytes are not there
  int64_t n_damaged_segments = 0;  // whose first page is unsound
};

class DiskStore : public Tier {
 public:
  // Fails with one line that names the folder or file: kNotFound, kInvalid (another identity,
  // format, byte order or key; files of somebody else; options), kExhausted (another process has
  // it), kIo. Nothing is removed or written over then.
  static Result<std::unique_ptr<DiskStore>> open(const StoreOptions& options);
  ~DiskStore() override;

  bool put(const TierBlock& block, std::span<const std::byte> payload) override;
  int64_t count(std::span<const BlockKey> keys) const override;
  std::optional<TierTicket> get(const BlockKey& key, std::span<std::byte> payload) override;
  std::vector<TierCompletion> poll(int64_t timeout_us = 0) override;
  void forget(const BlockKey& key) override;
  void flush() override;
  TierCounters counters() const override;

  const StoreReport& report() const;
  // Why the store does not write any more, until it is opened again; empty: it does.
  std::string broken() const;

 private:
  struct Parts;
  explicit DiskStore(std::unique_ptr<Parts> parts);

  std::unique_ptr<Parts> parts_;
};

}  // namespace fathom
