#include "apps/tier_flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <optional>

#include "apps/input.h"
#include "apps/numbers.h"
#include "apps/server_log.h"
#include "base/clock.h"
#include "checkpoint/fingerprint.h"

namespace fathom {
namespace {

constexpr uint64_t kConfigBytesMax = 1 << 20;
constexpr int64_t kSegmentBytesMax = int64_t{256} << 20;
constexpr int64_t kSegments = 8;  // of a small store
constexpr int64_t kQueueBytesMax = int64_t{64} << 20;

// What decides the bytes of a block beside weights, layout and ids: values of the configuration,
// the rounding of index scores, and this program. Backend, threads and schedule do not.
Result<std::string> arithmetic_of(const LoadedModel& loaded, const ModelFlags& flags) {
  FATHOM_ASSIGN_OR_RETURN(const std::string config,
                          read_text(loaded.path + "/config.json", kConfigBytesMax));
  const Sha256Digest digest = sha256(std::as_bytes(std::span(config)));
  return "fathom " FATHOM_VERSION ", index scores " + flags.index_scores + ", config " +
         to_hex(digest);
}

std::string gigabytes(int64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", static_cast<double>(bytes) / 1e9);
  return text;
}

std::string store_line(const DiskStore& disk, const std::string& folder) {
  const StoreReport& report = disk.report();
  const TierCounters counters = disk.counters();
  std::string line = "store " + folder + ": " + std::to_string(counters.n_blocks) + " blocks, " +
                     gigabytes(counters.held_bytes) + " of " + gigabytes(counters.max_bytes) +
                     " GB, " + report.road;
  if (report.index_rebuilt) line += ", index made anew: " + report.index_fault;
  if (report.n_adopted > 0) line += ", " + std::to_string(report.n_adopted) + " records adopted";
  if (report.n_lost > 0) line += ", " + std::to_string(report.n_lost) + " lost";
  return line;
}

}  // namespace

void OpenTiers::add_to(EngineOptions& options) const {
  if (host) options.tiers.push_back({"host", host.get()});
  if (disk) options.tiers.push_back({"disk", disk.get()});
}

void TierFlags::add_to(CLI::App& app) {
  CLI::Option* folder =
      app.add_option("--store", store,
                     "Keep computed prefixes in this folder beyond the end of the process")
          ->type_name("DIR");
  app.add_option("--store-size", store_bytes, "Bytes of the store")
      ->transform(size_number(int64_t{16} << 20, int64_t{1} << 50))
      ->needs(folder)
      ->capture_default_str();
  app.add_option("--store-age", store_hours, "Hours that a block is kept, room allowing")
      ->check(whole_number(1, 24 * 3650))
      ->needs(folder)
      ->capture_default_str();
  app.add_option("--store-key", store_key,
                 "Key that the store is sealed with on the disk: a file of 32 bytes or 64 "
                 "hexadecimal digits")
      ->type_name("FILE")
      ->needs(folder);
  app.add_option("--host-tier", host_bytes,
                 "Host memory for blocks that the pool has no room for, 0: none; of use beside a "
                 "GPU, whose pool is smaller")
      ->transform(size_number(0, int64_t{1} << 50))
      ->capture_default_str();
  app.add_option("--restore-s", restore_s,
                 "Seconds that a request waits for blocks of a tier before it computes them")
      ->check(whole_number(1, 3600))
      ->capture_default_str();
}

Result<OpenTiers> TierFlags::open(const Session& session, const ModelFlags& flags, bool quiet,
                                  KeyRoot* root) const {
  OpenTiers tiers;
  std::function<void(const std::string&)> problem;
  if (!quiet) {
    tiers.log = std::make_unique<SparingLog>(log_line);
    problem = [log = tiers.log.get()](const std::string& line) {
      log->say("- - store: " + line, steady_seconds());
    };
  }
  if (host_bytes > 0) tiers.host = std::make_unique<HostTier>(host_bytes, problem);
  if (store.empty()) return tiers;
  std::optional<SecretKey> key;
  if (!store_key.empty()) {
    FATHOM_ASSIGN_OR_RETURN(key, read_key(store_key));
  }
  const LoadedModel& loaded = session.loaded;
  FATHOM_ASSIGN_OR_RETURN(ThreadPool pool, ThreadPool::make(flags.threads));
  root->weights = cached_fingerprint(*loaded.checkpoint, pool);
  FATHOM_ASSIGN_OR_RETURN(root->encoder_version, arithmetic_of(loaded, flags));
  const int64_t segment = store_bytes / kSegments / kPageBytes * kPageBytes;
  FATHOM_ASSIGN_OR_RETURN(
      tiers.disk,
      DiskStore::open({.folder = store,
                       .identity = {.weights = root->weights,
                                    .spec = loaded.model->kv_spec().id(),
                                    .block_bytes = session.runner->blocks().block_bytes()},
                       .key = key,
                       .max_bytes = store_bytes,
                       .max_age_us = store_hours * 3600 * 1'000'000,
                       .segment_bytes = std::min(kSegmentBytesMax, segment),
                       .queue_bytes = std::min(kQueueBytesMax, segment),
                       .problem = problem}));
  if (!quiet) note(store_line(*tiers.disk, store) + (key ? ", sealed" : ""));
  return tiers;
}

}  // namespace fathom
