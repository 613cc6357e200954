#include "tensor/tensor.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/memory.h"

namespace fathom {
namespace {

constexpr int64_t kAlignment = 64;

int64_t aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

void release_host(void* data) { std::free(data); }

}  // namespace

Tensor Tensor::dense(void* data, DType dtype, std::initializer_list<int64_t> shape) {
  return dense(static_cast<const void*>(data), dtype,
               std::span<const int64_t>(shape.begin(), shape.size()));
}

Tensor Tensor::dense(const void* data, DType dtype, std::span<const int64_t> shape) {
  FATHOM_CHECK(shape.size() <= kMaxRank);
  Tensor t;
  t.data = const_cast<void*>(data);
  t.dtype = dtype;
  t.rank = static_cast<int>(shape.size());
  int64_t step = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    FATHOM_CHECK(shape[i] >= 0);
    t.shape[i] = shape[i];
    t.stride[i] = step;
    step *= shape[i];
  }
  return t;
}

int64_t Tensor::elements() const {
  int64_t n = 1;
  for (int i = 0; i < rank; ++i) n *= dim(i);
  return n;
}

bool Tensor::is_dense() const {
  int64_t step = 1;
  for (int i = rank; i-- > 0;) {
    if (dim(i) != 1 && stride[static_cast<size_t>(i)] != step) return false;
    step *= dim(i);
  }
  return true;
}

Tensor Tensor::rows(int64_t begin, int64_t end) const {
  FATHOM_CHECK(rank > 0);
  FATHOM_CHECK(0 <= begin && begin <= end && end <= shape[0]);
  Tensor t = *this;
  t.data = static_cast<std::byte*>(data) + begin * stride[0] * dtype_bytes(dtype);
  t.shape[0] = end - begin;
  return t;
}

Tensor Tensor::reshaped(std::initializer_list<int64_t> new_shape) const {
  FATHOM_CHECK(is_dense());
  Tensor t = dense(data, dtype, new_shape);
  t.device = device;
  FATHOM_CHECK(t.elements() == elements());
  return t;
}

std::string shape_text(std::span<const int64_t> shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  }
  return text + "]";
}

bool has_shape(const Tensor& t, std::initializer_list<int64_t> shape) {
  return t.rank == static_cast<int>(shape.size()) &&
         std::equal(shape.begin(), shape.end(), t.shape.begin());
}

Buffer::Buffer(int64_t bytes) {
  Result<Buffer> buffer = allocate(bytes, "work space");
  if (!buffer) {  // work space in the middle of a step: nobody above could go on
    std::fprintf(stderr, "fathom: %s\n", buffer.error().message.c_str());
    std::_Exit(1);
  }
  *this = std::move(*buffer);
}

Result<Buffer> Buffer::allocate(int64_t bytes, const std::string& what) {
  FATHOM_CHECK(bytes >= 0);
  const uint64_t available = available_memory_bytes();
  if (static_cast<uint64_t>(bytes) > available) {
    return exhausted(what + ": wanted " + std::to_string(bytes) + " bytes of memory, found " +
                     std::to_string(available) + " available");
  }
  const auto size = static_cast<size_t>(aligned(std::max<int64_t>(bytes, 1)));
  void* data = std::aligned_alloc(kAlignment, size);
  if (data == nullptr) {
    return exhausted(what + ": cannot allocate " + std::to_string(bytes) + " bytes");
  }
  std::memset(data, 0, size);
  return adopt(data, bytes, Device::kCpu, release_host);
}

Buffer Buffer::adopt(void* data, int64_t bytes, Device device, Release release) {
  Buffer buffer;
  buffer.data_ = {static_cast<std::byte*>(data), Free{release}};
  buffer.bytes_ = bytes;
  buffer.device_ = device;
  return buffer;
}

Tensor Buffer::view(int64_t offset, DType dtype, std::span<const int64_t> shape) const {
  Tensor t = Tensor::dense(data_.get() + offset, dtype, shape);
  t.device = device_;
  FATHOM_CHECK(0 <= offset && offset + t.bytes() <= bytes_);
  return t;
}

Tensor Arena::make(DType dtype, std::initializer_list<int64_t> shape) {
  std::byte* data = buffer_.data() == nullptr ? nullptr : buffer_.data() + used_;
  Tensor t = Tensor::dense(data, dtype, shape);
  t.device = buffer_.device();
  used_ += aligned(t.bytes());
  FATHOM_CHECK(used_ <= capacity_);
  peak_ = std::max(peak_, used_);
  return t;
}

Activation Activation::make(Arena& arena, int64_t n_rows, int64_t width) {
  FATHOM_CHECK(width % 32 == 0);
  return {.bf16 = arena.make(DType::kBf16, {n_rows, width}),
          .codes = arena.make(DType::kE4m3, {n_rows, width}),
          .scales = arena.make(DType::kE8m0, {n_rows, width / 32})};
}

Activation Activation::rows(int64_t begin, int64_t end) const {
  return {.bf16 = bf16.rows(begin, end),
          .codes = codes.rows(begin, end),
          .scales = scales.rows(begin, end)};
}

}  // namespace fathom
