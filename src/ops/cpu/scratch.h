#pragma once

// Memory that a thread keeps between words, so that a step allocates nothing once it is warm.
// A word may use several areas at a time; each area is named by its type. The content is undefined.

#include <cstdint>

#include "tensor/tensor.h"

namespace fathom::cpu {

template <typename Area, typename T = float>
T* scratch(int64_t count) {
  thread_local Buffer buffer;
  const int64_t bytes = count * static_cast<int64_t>(sizeof(T));
  if (buffer.bytes() < bytes) buffer = Buffer(bytes + bytes / 4);
  return reinterpret_cast<T*>(buffer.data());
}

}  // namespace fathom::cpu
