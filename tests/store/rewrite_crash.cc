#include "rewrite_crash.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "cache/store/audit.h"
#include "cache/store/block_testing.h"
#include "cache/store/disk_store.h"
#include "cache/store/rewrite.h"
#include "cache/store/segment_scan.h"

namespace fathom {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kBlockBytes = 3000;
constexpr int64_t kSegmentBytes = 16 * kPageBytes;
constexpr int64_t kTrialsOfAFolder = 20;
constexpr int64_t kBlocksOfAChain = 24;
constexpr size_t kKeptMax = 72;
constexpr size_t kTraceBytes = 32;

class RewriteTrials {
 public:
  RewriteTrials(std::string folder, uint64_t seed) : folder_(std::move(folder)), random_(seed) {}

  RewriteCrashCounts run(int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      if (i % kTrialsOfAFolder == 0) begin_anew(i / kTrialsOfAFolder % 2 == 1);
      trial(i % 4 < 2, i % 2 == 0);
      ++counts_.trials;
    }
    fs::remove_all(folder_);
    return counts_;
  }

 private:
  void begin_anew(bool sealed) {
    fs::remove_all(folder_);
    kept_.clear();
    options_ = {};
    options_.folder = folder_;
    options_.identity.block_bytes = kBlockBytes;
    if (sealed) options_.key.emplace().fill(5);
    options_.segment_bytes = kSegmentBytes;
    options_.max_bytes = 4096 * kSegmentBytes;
  }

  std::unique_ptr<DiskStore> open() {
    auto store = DiskStore::open(options_);
    if (!store) fault(store.error().message);
    return store ? std::move(*store) : nullptr;
  }

  // A tenant's chain beside what is kept, and dead bytes.
  void fill() {
    const auto store = open();
    if (!store) return;
    ++chain_;
    for (int64_t depth = 0; depth < kBlocksOfAChain; ++depth) {
      const TierBlock block = chain_block(chain_, depth);
      store->put(block, payload_of_key(block.key, kBlockBytes));
      const TierBlock other = chain_block(kOthers + chain_, depth / 2);
      store->put(other, payload_of_key(other.key, kBlockBytes));
      if (depth % 2 == 0) kept_.push_back(other.key);
    }
    store->flush();
    for (int i = 0; i < 4 || kept_.size() > kKeptMax; ++i) {
      const auto at = static_cast<ptrdiff_t>(random_() % kept_.size());
      store->forget(kept_[static_cast<size_t>(at)]);
      kept_.erase(kept_.begin() + at);
    }
    store->flush();
  }

  std::optional<uint64_t> tenant(bool erase) const {
    return erase ? std::optional(chain_) : std::nullopt;
  }
  Result<RewriteReport> rewrite(bool erase) const {
    return rewrite_store(folder_, {.erase_tenant = tenant(erase), .segment_bytes = kSegmentBytes});
  }

  // What stands on the disk of the tenant's blocks: keys, and some of what is behind their headers.
  std::vector<std::string> traces() const {
    std::vector<std::string> found;
    SegmentVisit visit;
    visit.record = [&](const RecordHead& head, std::span<const std::byte> record) {
      if (head.block.tenant_tag != chain_) return true;
      const auto payload = payload_of(head, record);
      const auto& digest = head.block.key.digest;
      found.emplace_back(reinterpret_cast<const char*>(payload.data()) + 1000, kTraceBytes);
      found.emplace_back(digest.begin(), digest.end());
      return true;
    };
    const auto survey = survey_store(folder_);
    FATHOM_CHECK(survey.has_value());
    for (const auto& [number, bytes] : survey->segments) {
      const auto scan =
          scan_segment(folder_ + "/" + segment_name(number), number, survey->identity, visit);
      FATHOM_CHECK(scan.has_value());
    }
    return found;
  }

  void trial(bool erase, bool opens_first) {
    fill();
    const std::vector<std::string> traces = this->traces();
    if (traces.size() != 2 * kBlocksOfAChain) fault("wanted traces of the tenant, found others");
    kill_within(erase);
    audit();
    if (opens_first) read_all(erase);
    const auto ended = rewrite(erase);
    if (!ended) return fault(ended.error().message);
    counts_.half_done += ended->n_rewritten > 0 ? 1 : 0;
    if (erase) search(traces);
    read_all(erase);
    // Those of a compaction go with the next folder.
    if (!erase) {
      for (int64_t depth = 0; depth < kBlocksOfAChain; ++depth)
        kept_.push_back(chain_key(chain_, depth));
    }
  }

  // A segment's file goes before its rows: of one, rows may stand alone.
  void audit() {
    auto report = audit_store(folder_, {.key = options_.key});
    if (!report) return fault(report.error().message);
    std::vector<std::string>& problems = report->problems;
    const auto lost = std::ranges::find_if(
        problems, [](const std::string& line) { return line.ends_with(" rows, found no file"); });
    if (lost != problems.end()) problems.erase(lost);
    counts_.problems += static_cast<int64_t>(problems.size());
    if (!problems.empty()) fault(problems[0]);
  }

  void kill_within(bool erase) {
    int ends[2] = {};
    FATHOM_CHECK(::pipe(ends) == 0);
    const double begin = steady_seconds();
    const double lives = std::uniform_real_distribution<double>(0, 1.2 * whole_seconds_)(random_);
    const pid_t child = ::fork();
    FATHOM_CHECK(child >= 0);
    if (child == 0) {
      ::close(ends[0]);
      ::_exit(rewrite(erase) ? 0 : 1);
    }
    ::close(ends[1]);
    // The pipe ends with the child.
    pollfd wait = {ends[0], POLLIN, 0};
    const timespec time = {0, static_cast<long>(lives * 1e9)};
    if (::ppoll(&wait, 1, &time, nullptr) == 0) ::kill(child, SIGKILL);
    int status = 0;
    FATHOM_CHECK(::waitpid(child, &status, 0) == child);
    ::close(ends[0]);
    counts_.killed_at_work += WIFSIGNALED(status) ? 1 : 0;
    if (WIFEXITED(status) && WEXITSTATUS(status) != 0) fault("a rewriter failed");
    // Kills are to fall on all of a rewrite, however fast the disk is at the time.
    const double seconds = std::min(kSecondsMax, steady_seconds() - begin);
    if (WIFEXITED(status)) whole_seconds_ = (whole_seconds_ + seconds) / 2;
    if (WIFSIGNALED(status)) whole_seconds_ = std::min(kSecondsMax, whole_seconds_ * 1.05);
  }

  void read_all(bool erase) {
    const auto store = open();
    if (!store) return;
    std::vector<BlockKey> keys = kept_;
    for (int64_t depth = 0; depth < kBlocksOfAChain; ++depth) {
      keys.push_back(chain_key(chain_, depth));
    }
    const size_t n_kept = erase ? kept_.size() : keys.size();
    for (size_t i = 0; i < keys.size(); ++i) {
      std::vector<std::byte> into(kBlockBytes, std::byte{0xa5});
      FATHOM_CHECK(store->get(keys[i], into).has_value());
      std::vector<TierCompletion> ended;
      while (ended.empty()) ended = store->poll(1'000'000);
      const bool ok = ended[0].status == TierStatus::kOk;
      const bool right = into == (ok ? payload_of_key(keys[i], kBlockBytes)
                                     : std::vector<std::byte>(kBlockBytes, std::byte{0xa5}));
      counts_.wrong += right ? 0 : 1;
      if (!right) fault("wrong bytes");
      if (i >= n_kept) continue;
      ++counts_.kept;
      counts_.found += ok ? 1 : 0;
      if (!ok) fault("a block is lost");
    }
  }

  void search(const std::vector<std::string>& traces) {
    std::string bytes;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      std::ifstream file(entry.path(), std::ios::binary);
      bytes.append(std::istreambuf_iterator<char>(file), {});
    }
    counts_.erased += kBlocksOfAChain;
    for (const std::string& trace : traces) {
      if (bytes.find(trace) == std::string::npos) continue;
      ++counts_.left;
      fault("a trace of an erased block");
    }
  }

  void fault(const std::string& what) {
    if (counts_.first_fault.empty()) {
      counts_.first_fault = "trial " + std::to_string(counts_.trials) + ": " + what;
    }
  }

  static constexpr uint64_t kOthers = 1'000'000;
  static constexpr double kSecondsMax = 0.5;

  const std::string folder_;
  std::mt19937_64 random_;
  StoreOptions options_;
  double whole_seconds_ = 0.03;  // of a rewrite that nobody kills
  uint64_t chain_ = 0;           // of the trial: its tenant, too
  std::vector<BlockKey> kept_;   // blocks of the folder that nothing is to take
  RewriteCrashCounts counts_;
};

}  // namespace

RewriteCrashCounts run_rewrite_trials(const std::string& folder, int64_t n, uint64_t seed) {
  return RewriteTrials(folder, seed).run(n);
}

}  // namespace fathom
