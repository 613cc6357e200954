#pragma once

// HashExecutor: an executor without a model. Every row is a hash of exactly the state that it was
// given: window rows and a remainder in the slot, entries in the blocks (one a position and one a
// pair of positions), positions. Two encoder and two decoder layers with windows of W rows stand
// for the real ones, in both schedules, so that a stale, swapped, missing or wrongly replayed piece
// of state changes the answer. `hash_answer` computes the same from the definition, with plain
// arrays and nothing else.

#include <random>

#include "engine/executor.h"
#include "pooled_executor.h"

namespace fathom {

struct HashOptions {
  bool deploy = false;
  int64_t window = 4;
  int64_t context = 400;
  int64_t n_sequences = 4;
  int64_t n_blocks = 16;
  int64_t max_rows = 32;
  double failure_rate = 0;             // of steps
  double allocation_failure_rate = 0;  // of slots, though some are free
  double copy_failure_rate = 0;        // of copies between the pools and the host
  uint64_t seed = 0;                   // of failures and of garbage
};

inline constexpr int64_t kHashVocab = 1000;
inline constexpr int32_t kPoisonToken = 999;  // a step with it in a prompt fails

// Host memory whose copies fail at a rate as those of a device do: what was to be written is not,
// what was to be read is zeros, and the next sync() says so.
class FailingMemory final : public DeviceMemory {
 public:
  FailingMemory(double rate, uint64_t seed) : rate_(rate), random_(seed) {}

  Device device() const override { return host_.device(); }
  Result<Buffer> allocate(int64_t bytes, const std::string& what) override {
    return host_.allocate(bytes, what);
  }
  void write(void* to, const void* from, int64_t bytes) override;
  void read(void* to, const void* from, int64_t bytes) override;
  Result<void> sync() override;

  int64_t n_failed() const { return n_failed_; }

 private:
  bool fails();

  HostMemory host_;
  double rate_;
  std::mt19937_64 random_;
  bool failed_ = false;  // since the last sync()
  int64_t n_failed_ = 0;
};

class HashExecutor final : public PooledExecutor<FailingMemory> {
 public:
  explicit HashExecutor(const HashOptions& options);

  ExecutorLimits limits() const override;

  void release_slot(Sequence& sequence) override;
  Result<void> take_slot(Sequence& sequence) override;
  bool restore(Sequence& sequence, std::span<const int32_t> prefix, std::span<const BlockId> blocks,
               RestoreGrade grade) override;
  bool can_branch(const Sequence& sequence) const override;
  void branch(Sequence& sequence, std::span<const int32_t> prefix, std::span<const BlockId> blocks,
              std::span<const std::byte> state) override;
  Result<void> append(Sequence& sequence, std::span<const int32_t> tokens,
                      std::span<const uint8_t> image) override;
  void copy(Sequence& to, const Sequence& from) override;
  Result<std::vector<SampledToken>> step(std::span<const ExecutorItem> items) override;

  // Failures that the rates brought, not those that a poisoned prompt brought.
  int64_t n_injected() const { return n_injected_; }
  int64_t n_failed_copies() const { return memory_.n_failed(); }

 private:
  bool injected(double rate);
  uint64_t& ring(const Sequence& sequence, int64_t layer, int64_t position);
  uint64_t& remainder(const Sequence& sequence);
  uint64_t& entry(const Sequence& sequence, int64_t position);
  uint64_t& pair_entry(const Sequence& sequence, int64_t position);
  uint64_t with_entries(uint64_t hash, const Sequence& sequence, int64_t position);
  int64_t replay_rows(RestoreGrade grade) const;
  void read_entries(const Sequence& sequence, int64_t end);
  uint64_t window_hash(const Sequence& sequence, int64_t layer, int64_t low, int64_t position);
  void encode(Sequence& sequence);
  uint64_t decode(Sequence& sequence, int64_t position);
  void scribble(Sequence& sequence);
  void garbage(const Sequence& sequence);

  HashOptions options_;
  std::mt19937_64 random_;
  std::vector<uint64_t> entries_;  // of the item being computed: hash of the first n entries, by n
  int64_t n_injected_ = 0;
};

// The tokens that a prompt gets alone in the exact grade.
std::vector<int32_t> hash_answer(const HashOptions& options, std::span<const int32_t> prompt,
                                 int64_t n_tokens, uint64_t seed);

}  // namespace fathom
