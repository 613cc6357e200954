// Device test and times of index_decode: its scores against index_select's, which have the CPU's
// bits; its choice against the host's from the same scores; batch invariance, repeated launches.

#include <cmath>
#include <cstring>
#include <numeric>
#include <string>

#include "device.cuh"
#include "ops/cuda/index_decode.h"

namespace fathom::device {
namespace {

constexpr int kHeads = 32;
constexpr int kWidth = 128;
constexpr int kChosen = 512;
constexpr int kBlocks = 2048;  // of a candidate pool
int failures = 0;

// One sequence a row, its blocks shuffled over the pool of memory.
struct Step {
  int ratio;
  int block_rows;
  int64_t block_bytes;
  int64_t stride;  // blocks a sequence
  std::vector<int64_t> position, sequence;
  Device<uint8_t> keys;
  Device<uint32_t> ids;
  Device<uint16_t> q, weights;
  Device<int64_t> positions, sequences;

  Step(int ratio_, std::vector<int64_t> at)
      : ratio(ratio_),
        block_rows(64 / ratio_),
        block_bytes(block_rows * 68),
        stride((*std::max_element(at.begin(), at.end()) + 64) / 64),
        position(std::move(at)),
        sequence(position.size()),
        keys(position.size() * static_cast<size_t>(stride * block_bytes)),
        ids(shuffled(position.size() * static_cast<size_t>(stride))),
        q(queries(position.size())),
        weights(normals(position.size() * kHeads)),
        positions(position),
        sequences(position.size()) {
    std::iota(sequence.begin(), sequence.end(), 0);
    sequences.put(sequence);
    std::vector<uint8_t> bytes(keys.size());
    for (size_t i = 0; i < bytes.size(); ++i) {
      const bool scale = static_cast<int64_t>(i) % block_bytes >= block_rows * 64;
      bytes[i] = static_cast<uint8_t>(scale ? 119 + mixed(i) % 6 : mixed(i));
    }
    keys.put(bytes);
  }
  int rows() const { return static_cast<int>(position.size()); }

  static std::vector<uint32_t> shuffled(size_t n) {
    std::vector<uint32_t> out(n);
    std::iota(out.begin(), out.end(), 0);
    for (size_t i = n; i > 1; --i) std::swap(out[i - 1], out[mixed(i) % i]);
    return out;
  }
  static uint16_t bits(float value) {
    uint32_t wide = 0;
    std::memcpy(&wide, &value, 4);
    return static_cast<uint16_t>(wide >> 16);
  }
  // Values of the query's quantiser: a code of FP4 times a power of two for 32 columns.
  static std::vector<uint16_t> queries(size_t rows) {
    constexpr float kValues[8] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
    std::vector<uint16_t> out(rows * kHeads * kWidth);
    for (size_t i = 0; i < out.size(); ++i) {
      const uint64_t random = mixed(i + (uint64_t{1} << 40));
      const int exponent = static_cast<int>(mixed(i / 32 + (uint64_t{1} << 41)) % 5) - 3;
      const float value = std::ldexp(kValues[random & 7], exponent);
      out[i] = bits((random & 8) != 0 ? -value : value);
    }
    return out;
  }
  static std::vector<uint16_t> normals(size_t n) {
    std::vector<uint16_t> out(n);
    for (size_t i = 0; i < n; ++i) {
      const double u = (static_cast<double>(mixed(2 * i) >> 11) + 0.5) * 0x1p-53;
      const double v = static_cast<double>(mixed(2 * i + 1) >> 11) * 0x1p-53;
      out[i] = bits(static_cast<float>(std::sqrt(-2 * std::log(u)) * std::cos(6.283185307 * v)));
    }
    return out;
  }
};

// What a launch writes, of `kept_rows` rows.
struct Work {
  Device<int32_t> topk, pool;
  Device<float> scores, tops;
  Device<cuda::RowPlan> plan;
  Device<uint32_t> bins;
  Device<uint64_t> kept;
  cuda::IndexDecode args;

  Work(const Step& s, int rows, bool makes_pool, const int32_t* pool_in, IndexScores mode)
      : topk(static_cast<size_t>(rows) * kChosen),
        pool(static_cast<size_t>(rows) * kBlocks),
        scores(static_cast<size_t>(rows) * static_cast<size_t>(places(s, pool_in))),
        tops(static_cast<size_t>(rows) * static_cast<size_t>(s.stride * 8)),
        plan(static_cast<size_t>(rows)),
        bins(static_cast<size_t>(cuda::IndexDecodeRoom::bin_words(rows))),
        kept(static_cast<size_t>(cuda::IndexDecodeRoom::kept_words(rows))) {
    cuda::IndexKernelArgs& a = args.a;
    a.topk = topk.get();
    a.pool_out = makes_pool ? pool.get() : nullptr;
    a.pool_in = pool_in;
    a.K = kChosen;
    a.topk_stride = kChosen;
    a.P = kBlocks;
    a.pool_stride = kBlocks;
    a.q = s.q.get();
    a.weights = s.weights.get();
    a.weight_stride = kHeads;
    a.weight_scale = 1.0F / std::sqrt(128.0F * kHeads);
    a.keys.base = s.keys.get();
    a.keys.block_bytes = s.block_bytes;
    a.keys.ids = s.ids.get();
    a.keys.stride = s.stride;
    a.keys.stream.ratio = s.ratio;
    a.keys.stream.rows = s.block_rows;
    a.keys.stream.payload_bytes = 64;
    a.keys.stream.scale_bytes = 4;
    a.keys.stream.scale_offset = s.block_rows * 64;
    a.rows.position = s.positions.get();
    a.rows.sequence = s.sequences.get();
    a.rows.n_rows = rows;
    a.n_heads = kHeads;
    a.width = kWidth;
    a.mode = mode;
    a.plan = plan.get();
    a.scores = scores.get();
    a.tops = tops.get();
    a.stride = places(s, pool_in);
    a.block_stride = s.stride * 8;
    a.n_piece = rows;
    args.room.bins = bins.get();
    args.room.kept = kept.get();
    args.room.entry_rows_log2 = s.block_rows == 64 ? 6 : 5;
  }
  static int64_t places(const Step& s, const int32_t* pool_in) {
    return pool_in == nullptr ? s.stride * s.block_rows : int64_t{kBlocks} * 8;
  }

  void run_fast(cudaStream_t stream = nullptr) const {
    must(cuda::index_decode(args, stream), "index_decode");
  }
  void run_exact(cudaStream_t stream = nullptr) const {
    cuda::launch_plan_rows(args.a, stream);
    cuda::launch_scores(args.a, stream);
    cuda::launch_choose(args.a, stream);
    must(cudaGetLastError(), "index_select");
  }
};

// The best `k` of a row in ascending order, of equal ones the first.
std::vector<int32_t> best(const float* scores, int64_t n, int k) {
  std::vector<int32_t> order;
  for (int64_t i = 0; i < n; ++i) {
    if (scores[i] > -INFINITY) order.push_back(static_cast<int32_t>(i));
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return scores[a] > scores[b]; });
  order.resize(std::min<size_t>(order.size(), static_cast<size_t>(k)));
  std::sort(order.begin(), order.end());
  order.resize(static_cast<size_t>(k), -1);
  return order;
}

struct Difference {
  double relative = 0;  // L2
  int64_t unequal = 0;
  int64_t misplaced = 0;  // one is finite, the other is not
};
Difference compare(const float* want, const float* got, int64_t n) {
  Difference found;
  double squared = 0;
  double size = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double x = want[i];
    const double y = got[i];
    found.unequal += x != y;
    found.misplaced += std::isfinite(x) != std::isfinite(y) || std::isnan(y);
    if (!std::isfinite(x) || !std::isfinite(y)) continue;
    squared += (x - y) * (x - y);
    size += x * x;
  }
  found.relative = std::sqrt(squared / size);
  return found;
}

// Blocks whose best score is not that of their entries; the newest one stands above all.
int64_t wrong_tops(const float* tops, const float* scores, const cuda::RowPlan& plan) {
  int64_t wrong = tops[plan.n_blocks - 1] != INFINITY;
  for (int64_t block = 0; block + 1 < plan.n_blocks; ++block) {
    wrong += tops[block] != *std::max_element(scores + 8 * block, scores + 8 * block + 8);
  }
  return wrong;
}

// The same lists from fewer rows, and again.
bool is_repeatable(const Step& s, const Work& first, IndexScores mode) {
  const auto topk = first.topk.host();
  const auto pool = first.pool.host();
  const bool makes_pool = first.args.a.pool_out != nullptr;
  const int32_t* pool_in = first.args.a.pool_in;
  bool same = true;
  for (int rows : {1, s.rows() / 2, s.rows()}) {
    const Work again(s, rows, makes_pool, pool_in, mode);
    for (int i = 0; i < 5; ++i) again.run_fast();
    must(cudaDeviceSynchronize(), "run again");
    const auto ids = again.topk.host();
    same = same && std::memcmp(ids.data(), topk.data(), ids.size() * 4) == 0;
    if (!makes_pool) continue;
    const auto blocks = again.pool.host();
    same = same && std::memcmp(blocks.data(), pool.data(), blocks.size() * 4) == 0;
  }
  return same;
}

// The same lists where rows come in pieces of three.
bool same_in_pieces(const Step& s, const Work& first, IndexScores mode) {
  Work again(s, s.rows(), first.args.a.pool_out != nullptr, first.args.a.pool_in, mode);
  cuda::IndexDecode args = again.args;
  for (args.a.first_row = 0; args.a.first_row < s.rows(); args.a.first_row += 3) {
    args.a.n_piece = std::min<int64_t>(3, s.rows() - args.a.first_row);
    must(cuda::index_decode(args, nullptr), "index_decode of a piece");
  }
  must(cudaDeviceSynchronize(), "run of pieces");
  return again.topk.host() == first.topk.host() && again.pool.host() == first.pool.host();
}

void check(const char* name, const Step& s, bool makes_pool, const int32_t* pool_in,
           IndexScores mode) {
  const Work exact(s, s.rows(), makes_pool, pool_in, mode);
  const Work fast(s, s.rows(), makes_pool, pool_in, mode);
  must(cuda::index_decode_fits(fast.args.a) ? cudaSuccess : cudaErrorInvalidValue, "fits");
  exact.run_exact();
  fast.run_fast();
  must(cudaDeviceSynchronize(), "run");
  const auto plan = fast.plan.host();
  const auto want = exact.scores.host();
  const auto got = fast.scores.host();
  const auto tops = fast.tops.host();
  const auto topk = fast.topk.host();
  const auto pool = fast.pool.host();
  const auto exact_topk = exact.topk.host();
  const auto lists = pool_in == nullptr ? std::vector<int32_t>() : [&] {
    std::vector<int32_t> out(static_cast<size_t>(s.rows()) * kBlocks);
    must(cudaMemcpy(out.data(), pool_in, out.size() * 4, cudaMemcpyDeviceToHost), "pool");
    return out;
  }();
  double worst = 0;
  int64_t unequal = 0;
  int64_t wrong = 0;
  int64_t shared = 0;
  int64_t chosen = 0;
  for (int r = 0; r < s.rows(); ++r) {
    const cuda::RowPlan& p = plan[static_cast<size_t>(r)];
    const size_t at = static_cast<size_t>(r) * static_cast<size_t>(fast.args.a.stride);
    const int32_t* row_topk = &topk[static_cast<size_t>(r) * kChosen];
    if (p.settled) {
      for (int i = 0; i < kChosen; ++i) wrong += row_topk[i] != (i < p.visible ? i : -1);
      for (int i = 0; makes_pool && i < kBlocks; ++i) {
        wrong += pool[static_cast<size_t>(r) * kBlocks + static_cast<size_t>(i)] !=
                 (i < p.n_blocks ? i : -1);
      }
      continue;
    }
    const Difference d = compare(&want[at], &got[at], p.n_places);
    worst = std::max(worst, d.relative);
    unequal += d.unequal;
    wrong += d.misplaced != 0;
    auto ids = best(&got[at], p.n_places, kChosen);
    for (int32_t& id : ids) {
      if (pool_in != nullptr && id >= 0) {
        id = lists[static_cast<size_t>(r) * kBlocks + static_cast<size_t>(id / 8)] * 8 + id % 8;
      }
    }
    wrong += std::memcmp(ids.data(), row_topk, sizeof(int32_t) * kChosen) != 0;
    const int32_t* other = &exact_topk[static_cast<size_t>(r) * kChosen];
    for (int i = 0; i < kChosen; ++i) {
      chosen += row_topk[i] >= 0;
      shared += row_topk[i] >= 0 && std::binary_search(other, other + kChosen, row_topk[i]);
    }
    if (!makes_pool) continue;
    const float* row_tops =
        &tops[static_cast<size_t>(r) * static_cast<size_t>(fast.args.a.block_stride)];
    wrong += wrong_tops(row_tops, &got[at], p);
    const auto blocks = best(row_tops, p.n_blocks, kBlocks);
    wrong += std::memcmp(blocks.data(), &pool[static_cast<size_t>(r) * kBlocks],
                         sizeof(int32_t) * kBlocks) != 0;
  }
  const bool same = is_repeatable(s, fast, mode) && same_in_pieces(s, fast, mode);
  std::printf(
      "%s: relative L2 %.2e, %lld scores differ, %lld lists wrong, same choice as exact "
      "scores %lld of %lld, invariant and repeatable %d\n",
      name, worst, static_cast<long long>(unequal), static_cast<long long>(wrong),
      static_cast<long long>(shared), static_cast<long long>(chosen), same);
  // Scores that are rounded to BF16 may fall on the other side of a step.
  failures += !(worst < (mode == IndexScores::kF32 ? 1e-5 : 3e-3)) + (wrong != 0) + !same;
}

// One list of each kind, for tools under which everything is slow.
void check_small() {
  const Step whole(1, {1023, 8200, 9000});
  check("ratio 1 with pool", whole, true, nullptr, IndexScores::kF32);
  const Work source(whole, whole.rows(), true, nullptr, IndexScores::kF32);
  source.run_fast();
  must(cudaDeviceSynchronize(), "pool");
  check("from a pool", whole, false, source.pool.get(), IndexScores::kF32);
}

void check_all() {
  const std::vector<int64_t> edges = {0,    1,    511,   1022,  1023,  1024,  1025,  4095,
                                      8191, 9000, 16383, 16384, 20001, 40000, 65535, 65536};
  for (const IndexScores mode : {IndexScores::kF32, IndexScores::kBf16}) {
    const Step halves(2, edges);
    check("ratio 2", halves, false, nullptr, mode);
    const Step whole(1, edges);
    check("ratio 1 with pool", whole, true, nullptr, mode);
    const Work source(whole, whole.rows(), true, nullptr, mode);
    source.run_fast();
    must(cudaDeviceSynchronize(), "pool");
    check("from a pool", whole, false, source.pool.get(), mode);
  }
}

void time_both(const char* name, const Work& work, double bytes) {
  const double fast = graph_time(16, [&](int, cudaStream_t stream) { work.run_fast(stream); });
  const double exact = graph_time(4, [&](int, cudaStream_t stream) { work.run_exact(stream); });
  std::printf("%s,%lld,%.2f,%.2f,%.3f\n", name, static_cast<long long>(work.args.a.n_piece), fast,
              exact, bytes / fast * 1e-6);
}

void bench() {
  std::printf("list,rows,us,exact us,TB/s of keys\n");
  for (const int64_t tokens : {4096, 65536, 1 << 20}) {
    const Step halves(2, {tokens - 1});
    const Work two(halves, 1, false, nullptr, IndexScores::kF32);
    time_both(("ratio 2, " + std::to_string(tokens)).c_str(), two,
              static_cast<double>(tokens) / 2 * 68);
    const Step whole(1, {tokens - 1});
    const Work one(whole, 1, true, nullptr, IndexScores::kF32);
    time_both(("ratio 1 and pool, " + std::to_string(tokens)).c_str(), one,
              static_cast<double>(tokens) * 68);
    one.run_fast();
    const Work listed(whole, 1, false, one.pool.get(), IndexScores::kF32);
    time_both(("from a pool, " + std::to_string(tokens)).c_str(), listed,
              std::min(16384.0, static_cast<double>(tokens)) * 68);
  }
  const Step many(2, std::vector<int64_t>(32, 65535));
  const Work batch(many, 32, false, nullptr, IndexScores::kF32);
  time_both("ratio 2, 65536", batch, 32.0 * 32768 * 68);
}

}  // namespace
}  // namespace fathom::device

// Checks; `bench`: times too; `small`: few checks.
int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  mode == "small" ? fathom::device::check_small() : fathom::device::check_all();
  if (mode == "bench") fathom::device::bench();
  return fathom::device::failures == 0 ? 0 : 1;
}
