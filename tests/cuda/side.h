#pragma once

// One backend with tensors in its memory, so that a test body can be run on either and its bytes
// compared. Values depend on the seed alone.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "ops/backends.h"
#include "tensor/codecs.h"

namespace fathom {

using Bytes = std::vector<uint8_t>;

class Side {
 public:
  Side(Ops& ops, uint64_t seed) : ops_(ops), random_(seed) {}

  Ops& ops() { return ops_; }
  std::mt19937_64& random() { return random_; }

  // Normal values with a few large ones, rounded to the dtype; scales of E8M0 around 2^-4.
  Tensor values(DType dtype, std::initializer_list<int64_t> shape, float scale = 1.0f) {
    const Buffer host(bytes_of(dtype, shape));
    const Tensor t = Tensor::dense(host.data(), dtype, shape);
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < t.elements(); ++i) {
      const float outlier = random_() % 100 == 0 ? 20.0f : 1.0f;
      const float v = outlier * scale * normal(random_);
      if (dtype == DType::kBf16) t.as<Bf16>()[i] = float_to_bf16(v);
      if (dtype == DType::kF32) t.as<float>()[i] = v;
      if (dtype == DType::kE4m3) t.as<uint8_t>()[i] = float_to_e4m3(v);
      if (dtype == DType::kI8) t.as<uint8_t>()[i] = static_cast<uint8_t>(random_());
      if (dtype == DType::kE8m0) t.as<uint8_t>()[i] = static_cast<uint8_t>(118 + random_() % 10);
    }
    return upload(t);
  }

  template <typename T>
  Tensor exactly(DType dtype, std::initializer_list<int64_t> shape, std::vector<T> values) {
    return upload(Tensor::dense(values.data(), dtype, shape));
  }

  // Filled with 0x7e: what a word leaves unwritten shows.
  Tensor output(DType dtype, std::initializer_list<int64_t> shape) {
    std::vector<uint8_t> poison(static_cast<size_t>(bytes_of(dtype, shape)), 0x7e);
    return upload(Tensor::dense(poison.data(), dtype, shape));
  }

  Activation activation(int64_t n_rows, int64_t width) {
    return {output(DType::kBf16, {n_rows, width}), output(DType::kE4m3, {n_rows, width}),
            output(DType::kE8m0, {n_rows, width / 32})};
  }

  // An activation as a word leaves it: both forms agree.
  Activation normed(int64_t n_rows, int64_t width) {
    const Activation x = activation(n_rows, width);
    ops_.rms_norm({x, values(DType::kBf16, {n_rows, width}), values(DType::kBf16, {width})});
    return x;
  }

  Weight weight(WeightFormat format, int64_t out, int64_t in, float scale = 1.0f) {
    if (format == WeightFormat::kBf16) return {values(DType::kBf16, {out, in}, scale), {}, format};
    if (format == WeightFormat::kF32) return {values(DType::kF32, {out, in}, scale), {}, format};
    if (format == WeightFormat::kFp8Block32) {
      return {values(DType::kE4m3, {out, in}),
              values(DType::kE8m0, {(out + 31) / 32, (in + 31) / 32}), format};
    }
    return {values(DType::kI8, {out, in / 2}), values(DType::kE8m0, {out, in / 32}), format};
  }

  // Memory that lives as long as this.
  std::byte* room(int64_t bytes) {
    memory_.push_back(*ops_.memory().allocate(bytes, "test"));
    return memory_.back().data();
  }

  void read(Bytes* to, const Tensor& t) {
    const size_t at = to->size();
    to->resize(at + static_cast<size_t>(t.bytes()));
    ops_.memory().read(to->data() + at, t.data, t.bytes());
  }
  void read(Bytes* to, const Activation& x) {
    read(to, x.bf16);
    read(to, x.codes);
    read(to, x.scales);
  }

 private:
  static int64_t bytes_of(DType dtype, std::initializer_list<int64_t> shape) {
    int64_t bytes = dtype_bytes(dtype);
    for (const int64_t extent : shape) bytes *= extent;
    return bytes;
  }

  Tensor upload(const Tensor& host) {
    Tensor t = host;
    t.data = room(host.bytes() + 64);
    t.device = ops_.memory().device();
    ops_.memory().write(t.data, host.data, host.bytes());
    return t;
  }

  Ops& ops_;
  std::mt19937_64 random_;
  std::vector<Buffer> memory_;
};

// The two backends; cuda is null where this machine has no GPU.
struct Backends {
  std::unique_ptr<Ops> cpu;
  std::unique_ptr<Ops> cuda;
};
inline Backends open_backends() {
  auto cuda = make_backend({.kind = BackendKind::kCuda});
  return {std::move(*make_backend({})), cuda ? std::move(*cuda) : nullptr};
}

// Runs body on both sides and compares what it returns.
class CudaWords : public testing::Test {
 protected:
  void SetUp() override {
    backends_ = open_backends();
    if (backends_.cuda == nullptr) GTEST_SKIP() << "no GPU on this machine";
  }

  using Body = std::function<Bytes(Side&)>;
  Bytes run(Ops& ops, uint64_t seed, const Body& body) {
    Side side(ops, seed);
    const Bytes bytes = body(side);
    const Result<void> synced = ops.memory().sync();
    EXPECT_TRUE(synced) << synced.error().message;
    return bytes;
  }
  void expect_same(uint64_t seed, const Body& body) {
    const Bytes cpu = run(*backends_.cpu, seed, body);
    const Bytes cuda = run(*backends_.cuda, seed, body);
    ASSERT_EQ(cpu.size(), cuda.size());
    ASSERT_FALSE(cpu.empty());
    size_t n_different = 0;
    size_t first = 0;
    for (size_t i = cpu.size(); i-- > 0;) {
      if (cpu[i] == cuda[i]) continue;
      ++n_different;
      first = i;
    }
    EXPECT_EQ(n_different, 0u) << "of " << cpu.size() << " bytes, the first at " << first;
  }

  Backends backends_;
};

// The GPU with exact, with fast and with trial numerics.
class CudaFast : public testing::Test {
 protected:
  void SetUp() override {
    auto exact = make_backend({.kind = BackendKind::kCuda});
    if (!exact) GTEST_SKIP() << "no GPU on this machine";
    exact_ = std::move(*exact);
    fast_ = std::move(*make_backend({.kind = BackendKind::kCuda, .numerics = Numerics::kFast}));
    trial_ = std::move(*make_backend({.kind = BackendKind::kCuda, .numerics = Numerics::kTrial}));
  }

  template <typename Body>
  Bytes run(Ops& ops, uint64_t seed, const Body& body) {
    Side side(ops, seed);
    const Bytes bytes = body(side);
    const Result<void> synced = ops.memory().sync();
    EXPECT_TRUE(synced) << synced.error().message;
    return bytes;
  }

  std::unique_ptr<Ops> exact_;
  std::unique_ptr<Ops> fast_;
  std::unique_ptr<Ops> trial_;
};

// ||a - b|| / ||b|| of bf16 values.
inline double relative_l2(std::span<const uint8_t> a, std::span<const uint8_t> b) {
  EXPECT_EQ(a.size(), b.size());
  double error = 0;
  double size = 0;
  for (size_t i = 0; i + 1 < std::min(a.size(), b.size()); i += 2) {
    const double x = bf16_to_float(static_cast<Bf16>(a[i] | a[i + 1] << 8));
    const double y = bf16_to_float(static_cast<Bf16>(b[i] | b[i + 1] << 8));
    error += (x - y) * (x - y);
    size += y * y;
  }
  return std::sqrt(error / size);
}

}  // namespace fathom
