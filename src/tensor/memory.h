#pragma once

// DeviceMemory: where a backend's tensors lie and how bytes get there and back. Pools, workspaces
// and weights are allocated from the memory of the backend that works on them; whoever holds a
// Buffer of it drops it before the memory itself goes.
//
// Copies are in order with the backend's words. Thread rule: as for the backend.

#include <string>

#include "tensor/tensor.h"

namespace fathom {

class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;

  virtual Device device() const = 0;

  // Zeroed; kExhausted where the memory is not to be had. `what` names the bytes in the message.
  virtual Result<Buffer> allocate(int64_t bytes, const std::string& what) = 0;

  // `from` lies on the host and may be changed as soon as this returns.
  virtual void write(void* to, const void* from, int64_t bytes) = 0;
  // `to` lies on the host and holds the bytes when this returns; where anything failed since the
  // last sync(), it holds zeros.
  virtual void read(void* to, const void* from, int64_t bytes) = 0;

  // Waits for all words and copies. The first failure since the last call, in one line: after it
  // nothing that was computed meanwhile is to be used.
  virtual Result<void> sync() = 0;
};

// The memory that the processor works on: copies are plain, nothing is pending.
class HostMemory final : public DeviceMemory {
 public:
  Device device() const override { return Device::kCpu; }
  Result<Buffer> allocate(int64_t bytes, const std::string& what) override {
    return Buffer::allocate(bytes, what);
  }
  void write(void* to, const void* from, int64_t bytes) override;
  void read(void* to, const void* from, int64_t bytes) override;
  Result<void> sync() override { return {}; }
};

}  // namespace fathom
