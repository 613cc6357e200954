#include <cstdio>
#include <filesystem>

#include "apps/bench.h"
#include "apps/common.h"
#include "apps/progress.h"
#include "apps/signals.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/temporary.h"
#include "model/inventory.h"
#include "model/plans.h"
#include "model/synth.h"

namespace fathom {
namespace {

namespace fs = std::filesystem;

std::string proxy_name(const std::string& plan, const ModelConfig& config) {
  constexpr size_t kShownDigits = 12;
  const std::string text = config_to_json(config);
  const std::string digest = to_hex(sha256(std::as_bytes(std::span(text))));
  const std::string stem = is_plan_path(plan) ? fs::path(plan).stem().string() : plan;
  return stem + "-" + digest.substr(0, kShownDigits);
}

bool is_complete(const fs::path& folder) {
  std::error_code code;
  return fs::exists(folder / "config.json", code);
}

Result<void> write_proxy(const BenchOptions& options, const ModelConfig& config,
                         const fs::path& folder) {
  const auto bytes =
      static_cast<uint64_t>(inventory_totals(expected_tensors(config)).payload_bytes);
  const Result<void> room = check_room(options.proxy_dir, bytes + bytes / 16);
  if (!room) {
    return exhausted("bench: " + room.error().message + " for the proxy of plan " + options.plan +
                     "; --proxy-dir names another folder");
  }
  if (options.notes) {
    char gigabytes[32];
    std::snprintf(gigabytes, sizeof(gigabytes), "%.1f", static_cast<double>(bytes) / 1e9);
    note("bench: writes the proxy of plan " + options.plan + " once, " + gigabytes + " GB, to " +
         options.proxy_dir);
  }
  FATHOM_ASSIGN_OR_RETURN(ThreadPool pool, ThreadPool::make(options.backend.n_threads));
  ProgressLine line(options.progress, "write proxy " + options.plan, "bytes");
  const StopSignals stop;
  SynthOptions synth;
  synth.progress = [&](int64_t done, int64_t all) {
    line.update(done, all);
    return !StopSignals::requested();
  };
  FATHOM_RETURN_IF_ERROR(write_random_model(folder.string(), config, synth, pool));
  if (StopSignals::requested()) {
    return Error{ErrorCode::kCancelled, "bench: stopped when the proxy was written"};
  }
  return {};
}

}  // namespace

// Written under another name and renamed, so that a stopped run leaves no half of a proxy.
Result<std::string> proxy_folder(const BenchOptions& options) {
  FATHOM_ASSIGN_OR_RETURN(const ModelConfig config, plan_from(options.plan));
  const fs::path folder = fs::path(options.proxy_dir) / proxy_name(options.plan, config);
  if (is_complete(folder)) return folder.string();
  Result<NewFolders> folders = NewFolders::make(options.proxy_dir);
  if (!folders) return io_error("bench: " + folders.error().message);
  FATHOM_ASSIGN_OR_RETURN(const FolderLock lock, FolderLock::take(options.proxy_dir));
  if (is_complete(folder)) return folder.string();  // by whoever had the lock before
  fs::path unfinished = folder;
  unfinished += ".unfinished";
  std::error_code code;
  fs::remove_all(unfinished, code);  // of a process that is gone: the lock is here
  const Result<void> written = write_proxy(options, config, unfinished);
  if (written) fs::rename(unfinished, folder, code);
  if (written && !code) {
    folders->keep();
    return folder.string();
  }
  std::error_code ignored;
  fs::remove_all(unfinished, ignored);
  if (!written) return written.error();
  return io_error("bench: " + folder.string() + ": cannot rename to: " + code.message());
}

}  // namespace fathom
