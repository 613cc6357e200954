#include "engine/executor.h"

namespace fathom {
namespace {

uint8_t* slot_of(Executor& executor, const Sequence& sequence) {
  const WindowPool& windows = executor.windows();
  return windows.base() + static_cast<int64_t>(sequence.slot) * windows.slot_bytes();
}

}  // namespace

std::vector<std::byte> read_slot(Executor& executor, const Sequence& sequence) {
  std::vector<std::byte> bytes(static_cast<size_t>(executor.windows().slot_bytes()));
  executor.memory().read(bytes.data(), slot_of(executor, sequence),
                         static_cast<int64_t>(bytes.size()));
  return bytes;
}

void write_slot(Executor& executor, const Sequence& sequence, std::span<const std::byte> bytes) {
  FATHOM_CHECK(static_cast<int64_t>(bytes.size()) == executor.windows().slot_bytes());
  executor.memory().write(slot_of(executor, sequence), bytes.data(),
                          static_cast<int64_t>(bytes.size()));
}

}  // namespace fathom
