#include "cache/store/state.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"

namespace fathom {
namespace {

constexpr int64_t kQueueShare = 4;  // of the bound: a small store has no large queue

}  // namespace

StoreState::StoreState(const StoreOptions& given, Disk& disk, std::unique_ptr<const Sealer> sealer)
    : options(given),
      disk(disk),
      sealer(std::move(sealer)),
      slot_bytes(record_bytes(given.identity.block_bytes)),
      n_slots(std::max<int64_t>(
          1, std::min(given.queue_bytes, given.max_bytes / kQueueShare) / slot_bytes)),
      ring(n_slots * slot_bytes),
      slots(static_cast<size_t>(n_slots)),
      catalog(given.worth != nullptr ? *given.worth : kRecomputeWorth),
      max_bytes(given.max_bytes) {}

int64_t StoreState::now_us() const {
  return options.unix_us ? options.unix_us() : unix_microseconds();
}

void StoreState::tell_bad(const RecordPlace& place) const {
  if (!options.problem) return;
  options.problem(path_of(place.segment) + ": byte " + std::to_string(place.page * kPageBytes) +
                  ": record: wanted the block that was put there, found other bytes");
}

void StoreState::end_get(TierTicket ticket, TierStatus status) {
  counters.hits += status == TierStatus::kOk ? 1 : 0;
  counters.misses += status == TierStatus::kMissing ? 1 : 0;
  counters.bad += status == TierStatus::kBad ? 1 : 0;
  --n_gets;
  ended.push_back({ticket, status});
}

}  // namespace fathom
