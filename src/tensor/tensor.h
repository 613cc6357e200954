#pragma once

// Tensor: a view of typed bytes with a shape; it owns nothing and does no arithmetic.
// Buffer: owned bytes. Arena: bump memory for one step. Weight: a matrix in its stored form.
//
// Lifetimes: whoever makes a Tensor keeps the bytes alive for as long as the view is used; a view
// is not stored past a call unless a header says who outlives whom. Bytes of weights are read-only
// even though `data` is not const.

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <memory>
#include <span>
#include <string>

#include "base/check.h"
#include "base/result.h"
#include "tensor/dtype.h"

namespace fathom {

enum class Device : uint8_t { kCpu, kCuda };

inline constexpr int kMaxRank = 4;

struct Tensor {
  void* data = nullptr;
  DType dtype = DType::kF32;
  Device device = Device::kCpu;
  int rank = 0;
  std::array<int64_t, kMaxRank> shape = {};
  std::array<int64_t, kMaxRank> stride = {};  // in elements; the last one is 1

  // A dense row-major view.
  static Tensor dense(void* data, DType dtype, std::initializer_list<int64_t> shape);
  static Tensor dense(const void* data, DType dtype, std::span<const int64_t> shape);

  bool empty() const { return data == nullptr; }
  int64_t dim(int i) const { return shape[static_cast<size_t>(i)]; }
  int64_t elements() const;
  int64_t bytes() const { return elements() * dtype_bytes(dtype); }
  bool is_dense() const;

  // Row i of the first dimension; T must fit the dtype's size.
  template <typename T>
  T* row(int64_t i) const {
    FATHOM_DCHECK(sizeof(T) == static_cast<size_t>(dtype_bytes(dtype)));
    return static_cast<T*>(data) + i * stride[0];
  }
  template <typename T>
  T* as() const {
    return row<T>(0);
  }

  // Rows [begin, end) of the first dimension.
  Tensor rows(int64_t begin, int64_t end) const;
  // The same dense bytes under another shape of as many elements.
  Tensor reshaped(std::initializer_list<int64_t> new_shape) const;
};

// "[512, 5120]"
std::string shape_text(std::span<const int64_t> shape);
inline std::string shape_text(const Tensor& t) {
  return shape_text({t.shape.data(), static_cast<size_t>(t.rank)});
}
bool has_shape(const Tensor& t, std::initializer_list<int64_t> shape);

// Owned bytes, aligned to 64 at least: host memory, or what a DeviceMemory (tensor/memory.h) gave.
class Buffer {
 public:
  Buffer() = default;
  // On the host, zeroed, for work space: where there is no memory the program ends with one line.
  explicit Buffer(int64_t bytes);

  // Zeroed, for sizes that a user chose: kExhausted where the memory is not to be had. `what` names
  // the bytes in the message.
  static Result<Buffer> allocate(int64_t bytes, const std::string& what);

  // Takes over bytes that `release` gives back.
  using Release = void (*)(void* data);
  static Buffer adopt(void* data, int64_t bytes, Device device, Release release);

  std::byte* data() const { return data_.get(); }
  int64_t bytes() const { return bytes_; }
  Device device() const { return device_; }

  // A dense view of the bytes from `offset` on.
  Tensor view(int64_t offset, DType dtype, std::span<const int64_t> shape) const;

 private:
  struct Free {
    Release release;
    void operator()(std::byte* p) const { release(p); }
  };
  std::unique_ptr<std::byte[], Free> data_;
  int64_t bytes_ = 0;
  Device device_ = Device::kCpu;
};

// Bump memory of one step: values live until reset. The capacity is planned beforehand; running
// over it is a bug. Memory is not cleared.
class Arena {
 public:
  explicit Arena(Buffer buffer) : buffer_(std::move(buffer)), capacity_(buffer_.bytes()) {}

  // Gives views without memory and only counts: the way to plan a capacity.
  static Arena measuring() { return Arena(); }

  Tensor make(DType dtype, std::initializer_list<int64_t> shape);
  void reset() { used_ = 0; }

  int64_t capacity() const { return capacity_; }
  int64_t used() const { return used_; }
  int64_t peak() const { return peak_; }

  // Everything made after mark() is given back by release(mark).
  int64_t mark() const { return used_; }
  void release(int64_t mark) { used_ = mark; }

 private:
  Arena() = default;

  Buffer buffer_;
  int64_t capacity_ = std::numeric_limits<int64_t>::max();
  int64_t used_ = 0;
  int64_t peak_ = 0;
};

// How a matrix [out, in] is stored. Source: spec/backbone.md 2.3.
enum class WeightFormat : uint8_t {
  kBf16,
  kF32,
  kFp8Block32,  // E4M3 [out, in], E8M0 scale [ceil(out/32), ceil(in/32)]
  kFp4Row32,    // packed E2M1 [out, in/2], E8M0 scale [out, in/32]
};

struct Weight {
  Tensor data;
  Tensor scale;
  WeightFormat format = WeightFormat::kBf16;

  bool empty() const { return data.empty(); }
  int64_t out() const { return data.dim(0); }
  int64_t in() const { return format == WeightFormat::kFp4Row32 ? 2 * data.dim(1) : data.dim(1); }
  int64_t bytes() const { return data.bytes() + (scale.empty() ? 0 : scale.bytes()); }
};

// Rows that enter matrix products: the bf16 values and the same values under A8
// (spec/backbone.md 2.2): E4M3 codes with one E8M0 scale per 32 channels.
struct Activation {
  Tensor bf16;    // [N, K]
  Tensor codes;   // [N, K]     e4m3
  Tensor scales;  // [N, K/32]  e8m0

  int64_t n_rows() const { return bf16.dim(0); }
  int64_t width() const { return bf16.dim(1); }
  static Activation make(Arena& arena, int64_t n_rows, int64_t width);
  Activation rows(int64_t begin, int64_t end) const;
};

}  // namespace fathom
