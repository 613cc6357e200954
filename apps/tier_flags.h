#pragma once

// Flags of the tiers behind a server's blocks, and the tiers that they open.

#include <functional>
#include <memory>
#include <string>

#include "apps/common.h"
#include "base/sparing_log.h"
#include "cache/host_tier.h"
#include "cache/remote/redis_states.h"
#include "cache/store/disk_store.h"
#include "cache/store/shared_store.h"
#include "engine/engine.h"

namespace fathom {

// Outlives the engine whose options it was added to.
struct OpenTiers {
  std::unique_ptr<SparingLog> log;  // of what their reads find wrong
  std::unique_ptr<HostTier> host;
  std::unique_ptr<DiskStore> disk;
  std::unique_ptr<SharedStore> shared;
  std::unique_ptr<RedisStates> states;

  void add_to(EngineOptions& options) const;
};

struct TierFlags {
  std::string store;  // folder; empty: none
  int64_t store_bytes = int64_t{64} << 30;
  int64_t store_hours = 72;
  std::string store_key;  // file; empty: payloads are in clear
  int64_t host_bytes = 0;
  int64_t restore_s = 30;
  std::string shared;  // folder; empty: none
  int64_t shared_bytes = int64_t{64} << 30;
  int64_t shared_hours = 72;
  std::string windows;  // URL; empty: none
  int64_t windows_ms = 50;

  void add_to(CLI::App& app);

  // Opens what was asked for, adds it to `options`, and sets the parts of their key root that name
  // contents beyond this process. Notes say what there is.
  Result<OpenTiers> open(const Session& session, const ModelFlags& flags, bool quiet,
                         Executor& executor, EngineOptions* options) const;

 private:
  Result<void> open_disk(const Session& session, bool quiet, const KeyRoot& root,
                         const std::function<void(const std::string&)>& problem,
                         OpenTiers* tiers) const;
  Result<void> open_shared(const Session& session, bool quiet, const KeyRoot& root,
                           OpenTiers* tiers) const;
  Result<void> open_states(const ModelFlags& flags, bool quiet, Executor& executor,
                           const EngineOptions& options, OpenTiers* tiers) const;
};

}  // namespace fathom
