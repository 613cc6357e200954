#pragma once

// Flags of the tiers behind a server's blocks, and the tiers that they open.

#include <memory>
#include <string>

#include "apps/common.h"
#include "base/sparing_log.h"
#include "cache/host_tier.h"
#include "cache/store/disk_store.h"
#include "engine/engine.h"

namespace fathom {

// Outlives the engine whose options it was added to.
struct OpenTiers {
  std::unique_ptr<SparingLog> log;  // of what their reads find wrong
  std::unique_ptr<HostTier> host;
  std::unique_ptr<DiskStore> disk;

  void add_to(EngineOptions& options) const;
};

struct TierFlags {
  std::string store;  // folder; empty: none
  int64_t store_bytes = int64_t{64} << 30;
  int64_t store_hours = 72;
  std::string store_key;  // file; empty: payloads are in clear
  int64_t host_bytes = 0;
  int64_t restore_s = 30;

  void add_to(CLI::App& app);

  // Opens what was asked for and sets the parts of `root` that name a store's contents beyond this
  // process. One note says what the store has.
  Result<OpenTiers> open(const Session& session, const ModelFlags& flags, bool quiet,
                         KeyRoot* root) const;
};

}  // namespace fathom
