#include "crash.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "cache/store/block_testing.h"
#include "cache/store/disk_store.h"

namespace fathom {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kBlockBytes = 3000;
constexpr int64_t kMaxDepth = 400;  // blocks that one writer puts
constexpr int64_t kTrialsOfAFolder = 24;
// The longest that a writer lives, from its start or from when it had published something, in turn.
constexpr double kLifeSeconds = 0.02;
constexpr double kWorkSeconds = 0.01;
constexpr double kPatienceSeconds = 5;

enum class Kind { kKilled, kSmall, kNoIndex, kDamaged };
constexpr int64_t kKinds = 4;

StoreOptions options_of(const std::string& folder, Kind kind, bool sealed) {
  StoreOptions options;
  options.folder = folder;
  if (sealed) options.key.emplace().fill(5);
  options.identity.weights.fill(1);
  options.identity.spec.fill(2);
  options.identity.block_bytes = kBlockBytes;
  options.segment_bytes = 16 * kPageBytes;
  options.max_bytes = (kind == Kind::kSmall ? 6 : 4096) * options.segment_bytes;
  options.queue_bytes = 32 * kPageBytes;
  return options;
}

// What a writer says through the pipe: so many first blocks of its chain are findable.
struct Said {
  uint64_t chain = 0;
  int64_t n_blocks = 0;
};

// Reads all keys. Those that came back; `counts` hears what is wrong with them.
std::set<BlockKey> read_all(DiskStore& store, const std::vector<BlockKey>& keys,
                            CrashCounts& counts) {
  std::vector<std::vector<std::byte>> into(keys.size(),
                                           std::vector<std::byte>(kBlockBytes, std::byte{0xa5}));
  std::map<TierTicket, size_t> asked;
  for (size_t i = 0; i < keys.size(); ++i) {
    const auto ticket = store.get(keys[i], into[i]);
    FATHOM_CHECK(ticket.has_value());
    asked[*ticket] = i;
  }
  std::set<BlockKey> found;
  while (!asked.empty()) {
    for (const TierCompletion& ended : store.poll(1'000'000)) {
      const size_t i = asked.at(ended.ticket);
      asked.erase(ended.ticket);
      const bool ok = ended.status == TierStatus::kOk;
      const auto wanted = ok ? payload_of_key(keys[i], kBlockBytes)
                             : std::vector<std::byte>(kBlockBytes, std::byte{0xa5});
      counts.wrong += into[i] == wanted ? 0 : 1;
      counts.read += ok ? 1 : 0;
      counts.bad += ended.status == TierStatus::kBad ? 1 : 0;
      if (ok) found.insert(keys[i]);
    }
  }
  return found;
}

[[noreturn]] void write_until_killed(const StoreOptions& options, uint64_t chain, int pipe) {
  std::mt19937_64 random(chain);
  auto store = DiskStore::open(options);
  if (!store) ::_exit(1);
  std::vector<BlockKey> keys;
  CrashCounts own;
  for (int64_t depth = 0; depth < kMaxDepth; ++depth) {
    const TierBlock block = chain_block(chain, depth);
    (*store)->put(block, payload_of_key(block.key, kBlockBytes));
    keys.push_back(block.key);
    if (random() % 6 != 0) continue;
    (*store)->flush();
    // A hit beside the writing, which also makes some blocks worth copying.
    read_all(**store, {keys[random() % keys.size()]}, own);
    const Said said = {chain, (*store)->count(keys)};
    if (own.wrong > 0 || ::write(pipe, &said, sizeof(said)) != sizeof(said)) ::_exit(1);
  }
  ::_exit(0);
}

class Trials {
 public:
  Trials(std::string folder, uint64_t seed) : folder_(std::move(folder)), random_(seed) {}

  CrashCounts run(int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      const auto kind = static_cast<Kind>(i / kTrialsOfAFolder % kKinds);
      sealed_ = i / kTrialsOfAFolder / kKinds % 2 == 1;
      if (i % kTrialsOfAFolder == 0) begin_anew();
      trial(kind);
      ++counts_.trials;
    }
    fs::remove_all(folder_);
    return counts_;
  }

 private:
  void begin_anew() {
    fs::remove_all(folder_);
    published_.clear();
    chains_.clear();
  }

  void trial(Kind kind) {
    const uint64_t chain = ++last_chain_;
    chains_.push_back(chain);
    const int64_t n_blocks = write_and_kill(options_of(folder_, kind, sealed_), chain);
    counts_.killed_at_work += n_blocks > 0 ? 1 : 0;
    for (int64_t depth = 0; depth < n_blocks; ++depth) published_.insert(chain_key(chain, depth));
    if (kind == Kind::kNoIndex) fs::remove(folder_ + "/index.mdb");
    if (kind == Kind::kDamaged) damage();
    look(kind);
  }

  // How many blocks of the chain were findable.
  int64_t write_and_kill(const StoreOptions& options, uint64_t chain) {
    int ends[2] = {};
    FATHOM_CHECK(::pipe(ends) == 0);
    const pid_t child = ::fork();
    FATHOM_CHECK(child >= 0);
    if (child == 0) {
      ::close(ends[0]);
      write_until_killed(options, chain, ends[1]);
    }
    ::close(ends[1]);
    const bool at_work = chain % 2 == 0;
    const double life = at_work ? kWorkSeconds : kLifeSeconds;
    const double lives = std::uniform_real_distribution<double>(0, life)(random_);
    double end = steady_seconds() + (at_work ? kPatienceSeconds : lives);
    Said said;
    int64_t n_blocks = 0;
    bool open = true;
    while (open) {
      const double left = end - steady_seconds();
      // From then on the pipe brings what was said before, and its end.
      if (left <= 0) ::kill(child, SIGKILL);
      pollfd wait = {ends[0], POLLIN, 0};
      if (::poll(&wait, 1, left <= 0 ? -1 : static_cast<int>(left * 1e3)) <= 0) continue;
      open = ::read(ends[0], &said, sizeof(said)) == sizeof(said);
      if (!open) break;
      if (at_work && n_blocks == 0) end = steady_seconds() + lives;
      n_blocks = std::max(n_blocks, said.n_blocks);
    }
    ::close(ends[0]);
    int status = 0;
    FATHOM_CHECK(::waitpid(child, &status, 0) == child);
    if (WIFEXITED(status) && WEXITSTATUS(status) != 0) fault("a writer failed");
    return n_blocks;
  }

  void damage() {
    if (!fs::exists(folder_)) return;  // killed before it began
    std::vector<std::string> files;
    for (const auto& file : fs::directory_iterator(folder_)) {
      const std::string name = file.path().filename().string();
      const bool theirs = name.starts_with("seg-") || name == "index.mdb";
      if (theirs && file.file_size() > 0) files.push_back(file.path().string());
    }
    if (files.empty()) return;
    std::sort(files.begin(), files.end());
    const std::string& path = files[random_() % files.size()];
    const uint64_t size = fs::file_size(path);
    const uint64_t at = random_() % size;
    if (random_() % 3 == 0) {
      fs::resize_file(path, at);
      return;
    }
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    if (random_() % 2 == 0) {
      file.seekg(static_cast<std::streamoff>(at));
      const auto byte = static_cast<char>(file.get() ^ (1 << random_() % 8));
      file.seekp(static_cast<std::streamoff>(at));
      file.put(byte);
      return;
    }
    const uint64_t begin = at / 512 * 512;
    const std::string zeros(std::min<uint64_t>(size - begin, 512 * (1 + random_() % 20)), '\0');
    file.seekp(static_cast<std::streamoff>(begin));
    file.write(zeros.data(), static_cast<std::streamsize>(zeros.size()));
  }

  void look(Kind kind) {
    const auto store = DiskStore::open(options_of(folder_, kind, sealed_));
    if (!store) {
      ++counts_.refused;
      fault(store.error().message);
      return;
    }
    counts_.rebuilt += (*store)->report().index_rebuilt ? 1 : 0;
    std::vector<BlockKey> keys;
    for (const uint64_t chain : chains_) {
      for (int64_t depth = 0; depth < kMaxDepth / 8; ++depth)
        keys.push_back(chain_key(chain, depth));
    }
    for (const BlockKey& key : published_) keys.push_back(key);
    const int64_t wrong = counts_.wrong;
    const std::set<BlockKey> found = read_all(**store, keys, counts_);
    if (counts_.wrong > wrong) fault("wrong bytes");
    // In a store that is too small what was published goes.
    if (kind != Kind::kKilled && kind != Kind::kNoIndex) return;
    counts_.published += static_cast<int64_t>(published_.size());
    for (const BlockKey& key : published_) counts_.found += found.contains(key) ? 1 : 0;
  }

  void fault(const std::string& what) {
    if (counts_.first_fault.empty()) {
      counts_.first_fault = "trial " + std::to_string(counts_.trials) + ": " + what;
    }
  }

  const std::string folder_;
  std::mt19937_64 random_;
  bool sealed_ = false;  // the store
  uint64_t last_chain_ = 0;
  std::vector<uint64_t> chains_;  // of this folder
  std::set<BlockKey> published_;  // in it
  CrashCounts counts_;
};

}  // namespace

CrashCounts run_crash_trials(const std::string& folder, int64_t n, uint64_t seed) {
  return Trials(folder, seed).run(n);
}

}  // namespace fathom
