#pragma once

// Opening a store's folder: whose it is, and what is in it.

#include "cache/store/index.h"
#include "cache/store/state.h"

namespace fathom {

struct Claim {
  StoreIdentity identity;  // with the seal of the folder's store
  std::unique_ptr<const Sealer> sealer;
};
// kInvalid, kNotFound or kIo where the folder cannot be the store's. Makes it one where it is
// empty.
Result<Claim> claim_folder(const StoreOptions& options);

struct Recovered {
  StoreIndex index;
  uint32_t next_segment = 1;
  uint32_t active = 0;  // goes on from active_end; 0: none
  int64_t active_end = 0;
  StoreReport report;
};
// Fills the catalog, with an index that agrees with it. Thread rule: before other threads begin.
Result<Recovered> recover(StoreState& state);

}  // namespace fathom
