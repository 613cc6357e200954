#pragma once

// Memory of one GPU and the stream on which everything runs in order. docs/design/cuda.md
//
// Failures are kept, not returned: the first one since the last sync() is the one that sync()
// tells, and words that come after it do nothing.

#include <cuda_runtime_api.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tensor/memory.h"

namespace fathom::cuda {

// What a machine says about its GPU 0, for `fathom --version` and for messages.
struct Gpu {
  std::string name;  // "NVIDIA H200"
  int major = 0;     // compute capability
  int minor = 0;
  int64_t memory_bytes = 0;
  int driver = 0;  // newest CUDA version of the driver: 13000
};

// kNotFound where there is none that this build can use; one line that says why.
Result<Gpu> find_gpu();

class Memory final : public DeviceMemory {
 public:
  // Of GPU 0. Refuses what find_gpu refuses.
  static Result<std::unique_ptr<Memory>> open();
  ~Memory() override;
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  Device device() const override { return Device::kCuda; }
  Result<Buffer> allocate(int64_t bytes, const std::string& what) override;
  void write(void* to, const void* from, int64_t bytes) override;
  void read(void* to, const void* from, int64_t bytes) override;
  Result<void> sync() override;

  cudaStream_t stream() const { return stream_; }
  // While words are kept and not run (ops/recorder.h), writes and zeroes of new memory are made at
  // once, beside the stream; nothing is read.
  void set_recording(bool on) { recording_ = on; }
  bool recording() const { return recording_; }
  bool failed() const { return failure_.has_value(); }
  // Keeps the failure that `code` stands for, if any; `what` is the word or the copy.
  void check(cudaError_t code, const char* what);
  void fail(const Error& error);

 private:
  Memory() = default;

  // Host memory through which small copies go, so that they need not wait for the device.
  static constexpr int64_t kStagingBytes = int64_t{16} << 20;

  cudaStream_t stream_ = nullptr;
  cudaStream_t upload_ = nullptr;  // of writes while words are kept
  bool recording_ = false;
  std::byte* staging_ = nullptr;
  int64_t staged_ = 0;  // bytes of it in use
  std::optional<Error> failure_;
};

// Memory of a word, kept from call to call and grown to the largest one seen; what stands in a
// place is lost when the same place is asked for again.
class Scratch {
 public:
  explicit Scratch(Memory& memory) : memory_(memory) {}

  // Null, and a failure of the memory, where the bytes are not to be had.
  template <typename T>
  T* get(size_t place, int64_t n) {
    return static_cast<T*>(bytes(place, n * static_cast<int64_t>(sizeof(T))));
  }

  int64_t held_bytes() const;

  // Counts how often memory that a word may have been launched with was given back.
  int64_t generation() const { return generation_; }

 private:
  static constexpr size_t kPlaces = 12;

  void* bytes(size_t place, int64_t n);

  Memory& memory_;
  Buffer buffers_[kPlaces];
  std::vector<Buffer> replaced_;  // while words were being kept: those may use them
  int64_t generation_ = 0;
};

}  // namespace fathom::cuda
