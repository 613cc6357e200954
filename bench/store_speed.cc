// store_speed FOLDER [TOKENS]: what the disk store costs beside its disk, with blocks of the
// released plan: 900,000 tokens if not given, in FOLDER/store-speed and FOLDER/store-speed-sealed,
// which are made and removed. Prints a Markdown table: writing and write amplification (device
// bytes of the process by the kernel's account, over payload bytes), in clear and sealed; opening,
// and reading both back beside a plain sequential read of the files in clear, six rounds in turn.
// Status 1 where a block does not come back.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "cache/store/block_testing.h"
#include "cache/store/disk_store.h"

namespace fathom {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kBlockBytes = 56960;
constexpr int64_t kBlockTokensOfPlan = 64;
constexpr int64_t kRounds = 6;
constexpr int64_t kReadBytes = int64_t{1} << 20;
constexpr int kReadsUnderWay = 32;

int64_t device_bytes(const std::string& name) {
  std::ifstream file("/proc/self/io");
  std::string word;
  int64_t value = 0;
  while (file >> word >> value) {
    if (word == name + ":") return value;
  }
  return 0;
}

void row(const std::string& what, const std::string& value) {
  fmt::print("| {} | {} |\n", what, value);
}

// Blocks that differ, cheaply.
void fill(std::vector<std::byte>& payload, int64_t number) {
  std::memcpy(payload.data(), &number, sizeof(number));
  std::memcpy(payload.data() + payload.size() - sizeof(number), &number, sizeof(number));
}

struct Written {
  double bytes = 0;
  double seconds = 0;
};

Written write_all(const StoreOptions& options, int64_t n) {
  auto store = DiskStore::open(options);
  FATHOM_CHECK(store.has_value());
  const std::string how = options.key ? "sealed: " : "";
  if (!options.key) row("road", (*store)->report().road);
  std::vector<std::byte> payload = payload_of_key(chain_key(0, 0), kBlockBytes);
  const int64_t before = device_bytes("write_bytes");
  const double begin = steady_seconds();
  for (int64_t i = 0; i < n; ++i) {
    fill(payload, i);
    while (!(*store)->put(chain_block(1, i), payload)) (*store)->flush();
  }
  (*store)->flush();
  const double seconds = steady_seconds() - begin;
  const TierCounters counters = (*store)->counters();
  const auto bytes = static_cast<double>(counters.put_payload_bytes);
  row(how + "blocks kept", std::to_string(counters.kept));
  row(how + "written, MB/s of payload", fmt::format("{:.0f}", bytes / seconds / 1e6));
  row(how + "bytes of segments over payload",
      fmt::format("{:.4f}", static_cast<double>(counters.written_bytes) / bytes));
  row(how + "device bytes over payload, index included",
      fmt::format("{:.4f}", static_cast<double>(device_bytes("write_bytes") - before) / bytes));
  return {bytes, seconds};
}

// Seconds of a plain read of all segments.
double read_files(const StoreOptions& options) {
  const auto disk = system_disk(options.folder, DiskRoad::kBest);
  const auto queue = disk->queue(kReadsUnderWay);
  PageMemory memory(kReadBytes * kReadsUnderWay);
  std::vector<FileDescriptor> files;
  std::vector<IoRequest> requests;
  for (const auto& file : fs::directory_iterator(options.folder)) {
    if (segment_number(file.path().filename().string()) < 0) continue;
    files.push_back(std::move(*disk->open(file.path().string(), false)));
    const auto size = static_cast<int64_t>(file.file_size());
    for (int64_t at = 0; at < size; at += kReadBytes) {
      const auto into =
          memory.at(static_cast<int64_t>(requests.size()) % kReadsUnderWay * kReadBytes,
                    std::min(kReadBytes, size - at));
      requests.push_back({IoKind::kRead, files.back().get(), at, into, 0});
    }
  }
  const double begin = steady_seconds();
  FATHOM_CHECK(run_all(*queue, kReadsUnderWay, requests, options.folder).has_value());
  return steady_seconds() - begin;
}

double read_blocks(DiskStore& store, int64_t n, std::vector<std::byte>& into) {
  const auto place = [&](int64_t i) {
    return std::span(into).subspan(static_cast<size_t>(i * kBlockBytes), kBlockBytes);
  };
  int64_t n_asked = 0;
  int64_t n_ended = 0;
  const double begin = steady_seconds();
  while (n_ended < n) {
    while (n_asked < n && store.get(chain_key(1, n_asked), place(n_asked)).has_value()) ++n_asked;
    for (const TierCompletion& ended : store.poll(1'000'000)) {
      FATHOM_CHECK(ended.status == TierStatus::kOk);
      ++n_ended;
    }
  }
  const double seconds = steady_seconds() - begin;
  for (int64_t i = 0; i < n; ++i) {
    int64_t number = -1;
    std::memcpy(&number, place(i).data(), sizeof(number));
    FATHOM_CHECK(number == i);
  }
  return seconds;
}

std::unique_ptr<DiskStore> opened(const StoreOptions& options) {
  auto store = DiskStore::open(options);
  FATHOM_CHECK(store.has_value());
  return std::move(*store);
}

void read_all(const StoreOptions& options, const StoreOptions& sealed, int64_t n, double bytes) {
  double begin = steady_seconds();
  std::unique_ptr<DiskStore> store = opened(options);
  row("open with the index, ms", fmt::format("{:.1f}", (steady_seconds() - begin) * 1e3));
  const std::unique_ptr<DiskStore> sealed_store = opened(sealed);
  std::vector<std::byte> into(static_cast<size_t>(n * kBlockBytes));
  // A plain read, the store in clear, the sealed one.
  std::array<double, 3> best = {1e9, 1e9, 1e9};
  for (int64_t round = 0; round < kRounds; ++round) {
    std::array<double, 3> seconds = {};
    // Who comes first takes turns: a disk may be fast for a while and slow behind it.
    for (size_t i = 0; i < seconds.size(); ++i) {
      const size_t who = (i + static_cast<size_t>(round)) % seconds.size();
      seconds.at(who) = who == 0   ? read_files(options)
                        : who == 1 ? read_blocks(*store, n, into)
                                   : read_blocks(*sealed_store, n, into);
      best.at(who) = std::min(best.at(who), seconds.at(who));
    }
    row(fmt::format("round {}: files, blocks, sealed blocks, MB/s", round + 1),
        fmt::format("{:.0f}, {:.0f}, {:.0f}", bytes / seconds[0] / 1e6, bytes / seconds[1] / 1e6,
                    bytes / seconds[2] / 1e6));
  }
  row("best time of blocks over best time of files", fmt::format("{:.3f}", best[1] / best[0]));
  row("best time of sealed blocks over best time of blocks",
      fmt::format("{:.3f}", best[2] / best[1]));
  std::vector<BlockKey> keys;
  for (int64_t i = 0; i < n; ++i) keys.push_back(chain_key(1, i));
  begin = steady_seconds();
  FATHOM_CHECK(store->count(keys) == n);
  row("count of all keys, ms", fmt::format("{:.2f}", (steady_seconds() - begin) * 1e3));
  store.reset();
  fs::remove(options.folder + "/index.mdb");
  begin = steady_seconds();
  store = opened(options);
  FATHOM_CHECK(store->counters().n_blocks == n);
  row("open without the index, s", fmt::format("{:.2f}", steady_seconds() - begin));
}

// The cipher alone, on a block that is in the processor's cache.
void seal_blocks(int64_t n) {
  const Sealer sealer(SecretKey{});
  std::vector<std::byte> payload = payload_of_key(chain_key(0, 0), kBlockBytes);
  SealTag tag = {};
  const double begin = steady_seconds();
  for (int64_t i = 0; i < n; ++i) tag = sealer.seal({}, {}, payload);
  const double sealed = steady_seconds() - begin;
  FATHOM_CHECK(sealer.open({}, {}, payload, tag));
  row("the cipher alone, MB/s", fmt::format("{:.0f}", n * kBlockBytes / sealed / 1e6));
}

int run(const std::string& folder, int64_t tokens) {
  StoreOptions options;
  options.folder = folder + "/store-speed";
  options.identity.block_bytes = kBlockBytes;
  const int64_t n = tokens / kBlockTokensOfPlan;
  fmt::print("| figure | value |\n|---|---|\n");
  row("tokens, payload MB", fmt::format("{}, {:.0f}", tokens, n * kBlockBytes / 1e6));
  StoreOptions sealed = options;
  sealed.folder += "-sealed";
  sealed.key = secret_bytes();
  const Written in_clear = write_all(options, n);
  const Written with_key = write_all(sealed, n);
  row("time of writing sealed over in clear",
      fmt::format("{:.3f}", with_key.seconds / in_clear.seconds));
  read_all(options, sealed, n, in_clear.bytes);
  seal_blocks(n);
  fs::remove_all(options.folder);
  fs::remove_all(sealed.folder);
  return 0;
}

}  // namespace
}  // namespace fathom

int main(int argc, char** argv) {
  int64_t tokens = 900'000;
  const char* text = argc == 3 ? argv[2] : "900000";
  const char* end = text + std::strlen(text);
  if (argc < 2 || argc > 3 || std::from_chars(text, end, tokens).ptr != end || tokens < 64) {
    std::fputs("usage: store_speed FOLDER [TOKENS]\n", stderr);
    return 2;
  }
  return fathom::run(argv[1], tokens);
}
