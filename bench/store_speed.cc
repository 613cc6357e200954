// store_speed FOLDER [TOKENS]: what the disk store costs beside its disk, with blocks of the
// released plan: 900,000 tokens if not given, in FOLDER/store-speed, which is made and removed.
// Prints a Markdown table: writing and write amplification (device bytes of the process by the
// kernel's account, over payload bytes), opening, and reading back beside a plain sequential read
// of the same files, six rounds in turn. Status 1 where a block does not come back.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
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

double write_all(const StoreOptions& options, int64_t n) {
  auto store = DiskStore::open(options);
  FATHOM_CHECK(store.has_value());
  row("road", (*store)->report().road);
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
  row("blocks kept", std::to_string(counters.kept));
  row("written, MB/s of payload", fmt::format("{:.0f}", bytes / seconds / 1e6));
  row("bytes of segments over payload",
      fmt::format("{:.4f}", static_cast<double>(counters.written_bytes) / bytes));
  row("device bytes over payload, index included",
      fmt::format("{:.4f}", static_cast<double>(device_bytes("write_bytes") - before) / bytes));
  return bytes;
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

void read_all(const StoreOptions& options, int64_t n, double bytes) {
  double begin = steady_seconds();
  auto store = DiskStore::open(options);
  FATHOM_CHECK(store.has_value());
  row("open with the index, ms", fmt::format("{:.1f}", (steady_seconds() - begin) * 1e3));
  std::vector<std::byte> into(static_cast<size_t>(n * kBlockBytes));
  double best_of_files = 1e9;
  double best_of_blocks = 1e9;
  for (int64_t round = 0; round < kRounds; ++round) {
    // Who comes first takes turns: a disk may be fast for a while and slow behind it.
    double blocks = 0;
    if (round % 2 == 1) blocks = read_blocks(**store, n, into);
    const double files = read_files(options);
    if (round % 2 == 0) blocks = read_blocks(**store, n, into);
    best_of_files = std::min(best_of_files, files);
    best_of_blocks = std::min(best_of_blocks, blocks);
    row(fmt::format("round {}: files, blocks, MB/s", round + 1),
        fmt::format("{:.0f}, {:.0f}", bytes / files / 1e6, bytes / blocks / 1e6));
  }
  row("best time of blocks over best time of files",
      fmt::format("{:.3f}", best_of_blocks / best_of_files));
  const std::vector<BlockKey> keys = [&] {
    std::vector<BlockKey> all;
    for (int64_t i = 0; i < n; ++i) all.push_back(chain_key(1, i));
    return all;
  }();
  begin = steady_seconds();
  FATHOM_CHECK((*store)->count(keys) == n);
  row("count of all keys, ms", fmt::format("{:.2f}", (steady_seconds() - begin) * 1e3));
  store = io_error("closed");
  fs::remove(options.folder + "/index.mdb");
  begin = steady_seconds();
  store = DiskStore::open(options);
  FATHOM_CHECK(store.has_value());
  FATHOM_CHECK((*store)->counters().n_blocks == n);
  row("open without the index, s", fmt::format("{:.2f}", steady_seconds() - begin));
}

int run(const std::string& folder, int64_t tokens) {
  StoreOptions options;
  options.folder = folder + "/store-speed";
  options.identity.block_bytes = kBlockBytes;
  const int64_t n = tokens / kBlockTokensOfPlan;
  fmt::print("| figure | value |\n|---|---|\n");
  row("tokens, payload MB", fmt::format("{}, {:.0f}", tokens, n * kBlockBytes / 1e6));
  const double bytes = write_all(options, n);
  read_all(options, n, bytes);
  fs::remove_all(options.folder);
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
