#include "ops/cuda/memory.h"

#include <algorithm>
#include <cstring>

namespace fathom::cuda {
namespace {

// The kernels are compiled for this architecture alone.
constexpr int kMajor = 9;
constexpr int kMinor = 0;

void release_device(void* data) { cudaFree(data); }

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

Error no_gpu(const std::string& why) { return not_found("cuda: " + why); }

}  // namespace

Result<Gpu> find_gpu() {
  Gpu gpu;
  int runtime = 0;
  cudaRuntimeGetVersion(&runtime);
  cudaDriverGetVersion(&gpu.driver);
  if (gpu.driver == 0) return no_gpu("no NVIDIA driver on this machine");
  int n_devices = 0;
  const cudaError_t code = cudaGetDeviceCount(&n_devices);
  if (code == cudaErrorInsufficientDriver) {
    return no_gpu("driver: wanted CUDA " + version_text(runtime) + " or newer, found " +
                  version_text(gpu.driver));
  }
  if (code == cudaErrorNoDevice || (code == cudaSuccess && n_devices == 0)) {
    return no_gpu("no GPU on this machine");
  }
  if (code != cudaSuccess) return no_gpu(cudaGetErrorString(code));
  cudaDeviceProp properties = {};
  if (const cudaError_t asked = cudaGetDeviceProperties(&properties, 0); asked != cudaSuccess) {
    return no_gpu(std::string("GPU 0: ") + cudaGetErrorString(asked));
  }
  gpu.name = properties.name;
  gpu.major = properties.major;
  gpu.minor = properties.minor;
  gpu.memory_bytes = static_cast<int64_t>(properties.totalGlobalMem);
  if (gpu.major == kMajor && gpu.minor == kMinor) return gpu;
  return no_gpu("GPU 0: wanted compute capability 9.0 (H100, H200), found " +
                std::to_string(gpu.major) + "." + std::to_string(gpu.minor) + " (" + gpu.name +
                ")");
}

Result<std::unique_ptr<Memory>> Memory::open() {
  FATHOM_ASSIGN_OR_RETURN(const Gpu gpu, find_gpu());
  std::unique_ptr<Memory> memory(new Memory());
  memory->check(cudaSetDevice(0), "open GPU 0");
  memory->check(cudaStreamCreateWithFlags(&memory->stream_, cudaStreamNonBlocking), "stream");
  memory->check(cudaStreamCreateWithFlags(&memory->upload_, cudaStreamNonBlocking), "stream");
  void* staging = nullptr;
  memory->check(cudaMallocHost(&staging, kStagingBytes), "pinned memory");
  memory->staging_ = static_cast<std::byte*>(staging);
  FATHOM_RETURN_IF_ERROR(memory->sync());
  return memory;
}

Memory::~Memory() {
  if (staging_ != nullptr) cudaFreeHost(staging_);
  if (upload_ != nullptr) cudaStreamDestroy(upload_);
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

Result<Buffer> Memory::allocate(int64_t bytes, const std::string& what) {
  FATHOM_CHECK(bytes >= 0);
  const auto size = static_cast<size_t>(std::max<int64_t>(bytes, 256));
  void* data = nullptr;
  const cudaError_t code = cudaMalloc(&data, size);
  if (code == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // this failure is not one of a later word
    size_t available = 0;
    size_t total = 0;
    cudaMemGetInfo(&available, &total);
    return exhausted(what + ": wanted " + std::to_string(bytes) + " bytes of GPU memory, found " +
                     std::to_string(available) + " available of " + std::to_string(total));
  }
  if (code != cudaSuccess) return io_error("cuda: " + what + ": " + cudaGetErrorString(code));
  Buffer buffer = Buffer::adopt(data, bytes, Device::kCuda, release_device);
  cudaError_t cleared = cudaMemsetAsync(data, 0, size, recording_ ? upload_ : stream_);
  if (recording_ && cleared == cudaSuccess) cleared = cudaStreamSynchronize(upload_);
  if (cleared != cudaSuccess) return io_error("cuda: " + what + ": " + cudaGetErrorString(cleared));
  return buffer;
}

void Memory::write(void* to, const void* from, int64_t bytes) {
  if (bytes <= 0 || failed()) return;
  const auto size = static_cast<size_t>(bytes);
  if (recording_) {
    check(cudaMemcpyAsync(to, from, size, cudaMemcpyHostToDevice, upload_), "copy to the GPU");
    return check(cudaStreamSynchronize(upload_), "copy to the GPU");
  }
  if (bytes > kStagingBytes / 4) {
    check(cudaMemcpyAsync(to, from, size, cudaMemcpyHostToDevice, stream_), "copy to the GPU");
    check(cudaStreamSynchronize(stream_), "copy to the GPU");
    return;
  }
  if (staged_ + bytes > kStagingBytes) {
    check(cudaStreamSynchronize(stream_), "copy to the GPU");
    staged_ = 0;
  }
  std::byte* place = staging_ + staged_;
  std::memcpy(place, from, size);
  staged_ += (bytes + 63) / 64 * 64;
  check(cudaMemcpyAsync(to, place, size, cudaMemcpyHostToDevice, stream_), "copy to the GPU");
}

void Memory::read(void* to, const void* from, int64_t bytes) {
  if (bytes <= 0) return;
  FATHOM_CHECK(!recording_);
  const auto size = static_cast<size_t>(bytes);
  if (!failed()) {
    check(cudaMemcpyAsync(to, from, size, cudaMemcpyDeviceToHost, stream_), "copy from the GPU");
    check(cudaStreamSynchronize(stream_), "copy from the GPU");
  }
  if (failed()) std::memset(to, 0, size);
}

Result<void> Memory::sync() {
  check(cudaStreamSynchronize(stream_), "step");
  if (!failed()) return {};
  const Error error = *failure_;
  failure_.reset();
  cudaGetLastError();
  return error;
}

void Memory::check(cudaError_t code, const char* what) {
  if (code == cudaSuccess) return;
  fail(io_error(std::string("cuda: ") + what + ": " + cudaGetErrorString(code)));
}

void Memory::fail(const Error& error) {
  if (!failure_) failure_ = error;
}

void* Scratch::bytes(size_t place, int64_t n) {
  Buffer& buffer = buffers_[place];
  if (buffer.data() != nullptr && buffer.bytes() >= n) return buffer.data();
  if (memory_.recording()) {
    replaced_.push_back(std::move(buffer));
  } else {
    memory_.check(cudaStreamSynchronize(memory_.stream()), "work space");
    if (buffer.data() != nullptr) ++generation_;
  }
  if (memory_.failed()) return nullptr;
  buffer = Buffer();
  Result<Buffer> grown = memory_.allocate(n + n / 4 + 256, "work space of a word");
  if (!grown) {
    memory_.fail(grown.error());
    return nullptr;
  }
  buffer = std::move(*grown);
  return buffer.data();
}

int64_t Scratch::held_bytes() const {
  int64_t all = 0;
  for (const Buffer& buffer : buffers_) all += buffer.bytes();
  return all;
}

}  // namespace fathom::cuda
