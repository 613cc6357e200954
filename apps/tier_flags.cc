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
constexpr int64_t kStateQueueBytes = int64_t{256} << 20;

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

// All that decides the bytes of a state beside its key: the layout of windows and blocks, and which
// rows the decoder sees.
Sha256Digest spec_of_states(const Sha256Digest& kv_spec, const std::string& mode) {
  const std::string text = "fathom states 1, blocks " + to_hex(kv_spec) + ", mode " + mode;
  return sha256(std::as_bytes(std::span(text)));
}

// Of every sequence of the executor, in bytes.
Result<int64_t> state_bytes(Executor& executor) {
  FATHOM_ASSIGN_OR_RETURN(Sequence sequence, executor.open());
  const auto slot = read_slot(executor, sequence);
  const auto n = static_cast<int64_t>(pack_state(executor, sequence, slot).size());
  executor.close(sequence);
  return n + executor.blocks().block_bytes();
}

}  // namespace

void OpenTiers::add_to(EngineOptions& options) const {
  if (host) options.tiers.push_back({"host", host.get()});
  if (disk) options.tiers.push_back({"disk", disk.get()});
  if (shared) options.tiers.push_back({"shared", shared.get()});
  options.states = states.get();
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
  CLI::Option* shared_folder =
      app.add_option("--shared", shared,
                     "Keep computed prefixes in this folder too, which other servers have at the "
                     "same time")
          ->type_name("DIR");
  app.add_option("--shared-size", shared_bytes, "Bytes of that folder, whoever writes them")
      ->transform(size_number(int64_t{16} << 20, int64_t{1} << 50))
      ->needs(shared_folder)
      ->capture_default_str();
  app.add_option("--shared-age", shared_hours, "Hours that a block is kept there, room allowing")
      ->check(whole_number(1, 24 * 3650))
      ->needs(shared_folder)
      ->capture_default_str();
  CLI::Option* url =
      app.add_option("--windows", windows,
                     "A server of the Redis protocol where the states that turns go on from are "
                     "shared with other processes for --session-ttl")
          ->type_name("redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE]")
          ->check([](const std::string& text) {
            const auto address = parse_redis_url(text);
            return address ? std::string() : address.error().message;
          });
  app.add_option("--windows-ms", windows_ms,
                 "Milliseconds that a request waits for such a state before it does without")
      ->check(whole_number(1, 60'000))
      ->needs(url)
      ->capture_default_str();
}

Result<OpenTiers> TierFlags::open(const Session& session, const ModelFlags& flags, bool quiet,
                                  Executor& executor, EngineOptions* options) const {
  OpenTiers tiers;
  std::function<void(const std::string&)> problem;
  if (!quiet) {
    tiers.log = std::make_unique<SparingLog>(log_line);
    problem = [log = tiers.log.get()](const std::string& line) {
      log->say("- - store: " + line, steady_seconds());
    };
  }
  if (host_bytes > 0) tiers.host = std::make_unique<HostTier>(host_bytes, problem);
  if (!store.empty() || !shared.empty() || !windows.empty()) {
    const LoadedModel& loaded = session.loaded;
    FATHOM_ASSIGN_OR_RETURN(ThreadPool pool, ThreadPool::make(flags.threads));
    options->key_root.weights = cached_fingerprint(*loaded.checkpoint, pool);
    FATHOM_ASSIGN_OR_RETURN(options->key_root.encoder_version, arithmetic_of(loaded, flags));
  }
  if (!store.empty()) {
    FATHOM_RETURN_IF_ERROR(open_disk(session, quiet, options->key_root, problem, &tiers));
  }
  if (!shared.empty()) {
    FATHOM_RETURN_IF_ERROR(open_shared(session, quiet, options->key_root, &tiers));
  }
  if (!windows.empty()) {
    FATHOM_RETURN_IF_ERROR(open_states(flags, quiet, executor, *options, &tiers));
  }
  tiers.add_to(*options);
  options->states_us_max = windows_ms * 1000;
  return tiers;
}

Result<void> TierFlags::open_disk(const Session& session, bool quiet, const KeyRoot& root,
                                  const std::function<void(const std::string&)>& problem,
                                  OpenTiers* tiers) const {
  std::optional<SecretKey> key;
  if (!store_key.empty()) {
    FATHOM_ASSIGN_OR_RETURN(key, read_key(store_key));
  }
  const int64_t segment = store_bytes / kSegments / kPageBytes * kPageBytes;
  FATHOM_ASSIGN_OR_RETURN(
      tiers->disk,
      DiskStore::open({.folder = store,
                       .identity = {.weights = root.weights,
                                    .spec = root.spec,
                                    .block_bytes = session.runner->blocks().block_bytes()},
                       .key = key,
                       .max_bytes = store_bytes,
                       .max_age_us = store_hours * 3600 * 1'000'000,
                       .segment_bytes = std::min(kSegmentBytesMax, segment),
                       .problem = problem}));
  if (!quiet) note(store_line(*tiers->disk, store) + (key ? ", sealed" : ""));
  return {};
}

Result<void> TierFlags::open_shared(const Session& session, bool quiet, const KeyRoot& root,
                                    OpenTiers* tiers) const {
  FATHOM_ASSIGN_OR_RETURN(
      tiers->shared,
      SharedStore::open({.folder = shared,
                         .identity = {.weights = root.weights,
                                      .spec = root.spec,
                                      .block_bytes = session.runner->blocks().block_bytes()},
                         .max_bytes = shared_bytes,
                         .max_age_us = shared_hours * 3600 * 1'000'000}));
  if (quiet) return {};
  const TierCounters counters = tiers->shared->counters();
  note("shared " + shared + ": " + std::to_string(counters.n_blocks) + " blocks, " +
       gigabytes(counters.held_bytes) + " of " + gigabytes(counters.max_bytes) + " GB");
  return {};
}

Result<void> TierFlags::open_states(const ModelFlags& flags, bool quiet, Executor& executor,
                                    const EngineOptions& options, OpenTiers* tiers) const {
  FATHOM_ASSIGN_OR_RETURN(const RedisAddress address, parse_redis_url(windows));
  FATHOM_ASSIGN_OR_RETURN(const int64_t bytes, state_bytes(executor));
  const KeyRoot& root = options.key_root;
  tiers->states = std::make_unique<RedisStates>(
      RedisStatesOptions{.address = address,
                         .identity = {.weights = root.weights,
                                      .spec = spec_of_states(root.spec, flags.mode),
                                      .block_bytes = bytes},
                         .ttl_us = options.sessions.ttl_us,
                         .find_us = windows_ms * 1000,
                         .queue_bytes = std::max(kStateQueueBytes, 2 * bytes)});
  if (quiet) return {};
  note("windows " + address.shown() + ": states of at most " + gigabytes(bytes) + " GB, " +
       std::to_string(options.sessions.ttl_us / 1'000'000) + " s");
  return {};
}

}  // namespace fathom
