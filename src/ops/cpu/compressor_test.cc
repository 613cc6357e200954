// Goal: latents, entries and keys of the golden compressor, through the word itself: nine tokens in
// one step and the tenth in another, at ratios 2 and 1. Method: golden vectors; the tokens one by
// one and cut at every place must give the same bytes.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "ops/backends.h"
#include "ops/cpu/golden_testing.h"
#include "ops/cpu/lanes.h"
#include "ops/cpu/paths_testing.h"
#include "ops/cpu/quantize.h"

namespace fathom {
namespace {

constexpr int64_t kHidden = 128;
constexpr int64_t kWidth = 512;
constexpr int64_t kIndex = 128;

// Keeps a copy of everything shown, then puts golden values in its place where they are given, so
// that one legal step of a bf16 does not spread to what follows.
class Recorder final : public Probe {
 public:
  void value(const std::string& name, const Tensor& tensor) override {
    auto* bytes = static_cast<uint8_t*>(tensor.data);
    values[name].assign(bytes, bytes + tensor.bytes());
    const auto golden = forced.find(name);
    if (golden == forced.end()) return;
    EXPECT_EQ(golden->second.bytes(), tensor.bytes()) << name;
    std::memcpy(bytes, golden->second.data, static_cast<size_t>(tensor.bytes()));
  }
  std::map<std::string, std::vector<uint8_t>> values;
  std::map<std::string, Tensor> forced;
};

Weight bf16_weight(const Tensor& t) { return {.data = t, .format = WeightFormat::kBf16}; }

// The word over the golden input with its caches: one block of memory a sequence.
class Compressor {
 public:
  Compressor(const Golden& golden, int ratio, CpuPath path) : golden_(golden), ratio_(ratio) {
    ops_ = std::move(*make_backend({.n_threads = 2, .cpu_path = path}));
    memory_ = Buffer(1 << 16);
    slot_ = Buffer(4 * kWidth * 4);
    main_ = {.role = KvRole::kMain,
             .ratio = ratio,
             .rows = 64,
             .payload_bytes = kWidth / 2,
             .scale_bytes = kWidth / 16,
             .payload_offset = 0,
             .scale_offset = 64 * kWidth / 2};
    index_ = {.role = KvRole::kIndex,
              .ratio = ratio,
              .rows = 64,
              .payload_bytes = kIndex / 2,
              .scale_bytes = kIndex / 32,
              .payload_offset = 32768,
              .scale_offset = 49152};
    remainder_ = {.role = KvRole::kRemainder, .rows = 4, .payload_bytes = 4 * kWidth};
  }

  void step(int64_t begin, int64_t end, Probe* probe = nullptr, int64_t write_from = 0) {
    const std::string r = ratio_ == 1 ? "r1." : "r2.";
    const Rows rows({{.n_rows = end - begin, .first_position = begin, .write_from = write_from}});
    const std::span<const BlockId> blocks(&block_, 1);
    const Tensor x = golden_.tensor("x").rows(begin, end);
    Arena arena(Buffer(1 << 20));
    Activation activation = Activation::make(arena, end - begin, kHidden);
    activation.bf16 = x;
    CompressArgs args;
    args.main = {uint8(memory_), 1 << 16, {&blocks, 1}, main_};
    args.index = {uint8(memory_), 1 << 16, {&blocks, 1}, index_};
    args.remainder = {uint8(slot_), 1 << 14, {&window_, 1}, remainder_};
    args.x = activation;
    args.wkv = bf16_weight(golden_.tensor(r + "wkv"));
    if (ratio_ > 1) args.wgate = bf16_weight(golden_.tensor(r + "wgate"));
    args.norm = golden_.tensor(r + "norm");
    args.wk = bf16_weight(golden_.tensor("wk.weight"));
    args.k_norm = golden_.tensor("k_norm.weight");
    args.inv_freq = frequencies_.tensor("yarn.inv_freq");
    args.rows = &rows;
    ops_->set_probe(probe);
    ops_->compress(args);
  }

  std::vector<uint8_t> memory() const {
    return std::vector<uint8_t>(uint8(memory_), uint8(memory_) + memory_.bytes());
  }
  const uint8_t* entry(int64_t g) const { return uint8(memory_) + g * main_.payload_bytes; }
  const uint8_t* entry_scales(int64_t g) const {
    return uint8(memory_) + main_.scale_offset + g * main_.scale_bytes;
  }
  const float* remainder(int64_t row) const {
    return reinterpret_cast<const float*>(slot_.data()) + row * kWidth;
  }

 private:
  static uint8_t* uint8(const Buffer& b) { return reinterpret_cast<uint8_t*>(b.data()); }

  const Golden& golden_;
  Golden frequencies_{"rope"};
  int ratio_;
  std::unique_ptr<Ops> ops_;
  Buffer memory_;
  Buffer slot_;
  KvStream main_;
  KvStream index_;
  KvStream remainder_;
  BlockId block_{};
  WindowId window_{};
};

void expect_shown(const Recorder& recorder, const char* name, const Tensor& wanted) {
  std::vector<uint8_t> bytes = recorder.values.at(name);
  ASSERT_EQ(static_cast<int64_t>(bytes.size()), wanted.bytes()) << name;
  expect_bf16_near(Tensor::dense(bytes.data(), DType::kBf16, {wanted.dim(0), wanted.dim(1)}),
                   wanted, 1, 0.01);
}

class CompressorPaths : public testing::TestWithParam<CpuPath> {};

TEST_P(CompressorPaths, EqualsTheGoldenEntries) {
  const Golden golden("compressor");
  for (const int ratio : {1, 2}) {
    const std::string r = ratio == 1 ? "r1." : "r2.";
    Compressor compressor(golden, ratio, GetParam());
    Recorder recorder;
    for (const char* name : {"c", "c_rope", "index_k_rope"}) {
      recorder.forced[std::string("attn.") + name] = golden.tensor(r + name);
    }
    compressor.step(0, 9, &recorder);
    expect_shown(recorder, "attn.c", golden.tensor(r + "c"));
    expect_shown(recorder, "attn.c_rope", golden.tensor(r + "c_rope"));
    expect_shown(recorder, "attn.index_k_rope", golden.tensor(r + "index_k_rope"));
    const Tensor codes = golden.tensor(r + "C_codes_packed");
    const Tensor scales = golden.tensor(r + "C_scales");
    for (int64_t g = 0; g < codes.dim(0); ++g) {
      EXPECT_EQ(0, std::memcmp(compressor.entry(g), codes.row<uint8_t>(g), kWidth / 2)) << g;
      EXPECT_EQ(0, std::memcmp(compressor.entry_scales(g), scales.row<uint8_t>(g), kWidth / 16));
    }
    const Tensor keys = golden.tensor(r + "index_k");
    EXPECT_EQ(0, std::memcmp(recorder.values.at("attn.index_k").data(), keys.data,
                             static_cast<size_t>(keys.bytes())));
  }
}

TEST_P(CompressorPaths, AnOddTokenWaitsForItsPartner) {
  const Golden golden("compressor");
  Compressor compressor(golden, 2, GetParam());
  compressor.step(0, 9);
  const auto a = golden.floats("r2.state_kv_after_9");
  const auto z = golden.floats("r2.state_score_after_9");
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_NEAR(compressor.remainder(0)[i], a[i], 1e-5 * (1 + std::fabs(a[i])));
    ASSERT_NEAR(compressor.remainder(1)[i], z[i], 1e-5 * (1 + std::fabs(z[i])));
  }
  Recorder recorder;
  compressor.step(9, 10, &recorder);
  expect_shown(recorder, "attn.c", golden.tensor("r2.c_decode_pos9"));
}

TEST_P(CompressorPaths, AnyCutGivesTheSameBytes) {
  const Golden golden("compressor");
  for (const int ratio : {1, 2}) {
    Compressor whole(golden, ratio, GetParam());
    whole.step(0, 10);
    Compressor single(golden, ratio, GetParam());
    for (int64_t t = 0; t < 10; ++t) single.step(t, t + 1);
    EXPECT_EQ(whole.memory(), single.memory());
    for (int64_t cut = 1; cut < 10; ++cut) {
      Compressor two(golden, ratio, GetParam());
      two.step(0, cut);
      two.step(cut, 10);
      EXPECT_EQ(whole.memory(), two.memory()) << ratio << " " << cut;
    }
  }
}

// A replay of tokens 4..10 with entries from position 7 on: groups that end below stay unwritten.
TEST_P(CompressorPaths, ReplayWritesNothingBelowItsFloor) {
  const Golden golden("compressor");
  Compressor whole(golden, 2, GetParam());
  whole.step(0, 10);
  Compressor replay(golden, 2, GetParam());
  replay.step(4, 9, nullptr, 7);
  replay.step(9, 10, nullptr, 7);
  const std::vector<uint8_t> untouched(kWidth / 2, 0);
  for (int64_t g = 0; g < 3; ++g) {
    EXPECT_EQ(0, std::memcmp(replay.entry(g), untouched.data(), kWidth / 2)) << g;
  }
  for (int64_t g = 3; g < 5; ++g) {
    EXPECT_EQ(0, std::memcmp(replay.entry(g), whole.entry(g), kWidth / 2)) << g;
  }
}

// The floor lies beyond the step: nothing is written, and the pending token is still kept.
TEST_P(CompressorPaths, AReplayBelowItsFloorKeepsThePendingToken) {
  const Golden golden("compressor");
  Compressor replay(golden, 2, GetParam());
  replay.step(2, 7, nullptr, 100);
  Compressor whole(golden, 2, GetParam());
  whole.step(0, 7);
  EXPECT_EQ(0, std::memcmp(replay.remainder(0), whole.remainder(0), 2 * kWidth * sizeof(float)));
  for (const uint8_t byte : replay.memory()) ASSERT_EQ(byte, 0);
}

INSTANTIATE_TEST_SUITE_P(Paths, CompressorPaths, testing::ValuesIn(paths_here()));

}  // namespace
}  // namespace fathom
