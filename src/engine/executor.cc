#include "engine/executor.h"

#include <cstring>

namespace fathom {
namespace {

uint8_t* slot_of(Executor& executor, const Sequence& sequence) {
  const WindowPool& windows = executor.windows();
  return windows.base() + static_cast<int64_t>(sequence.slot) * windows.slot_bytes();
}

uint8_t* block_of(Executor& executor, BlockId id) {
  const KvPool& blocks = executor.blocks();
  return blocks.base() + static_cast<int64_t>(id) * blocks.block_bytes();
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

std::vector<std::byte> pack_state(Executor& executor, const Sequence& sequence,
                                  std::span<const std::byte> slot) {
  const SequencePositions& positions = sequence.positions();
  const auto n_tail = static_cast<size_t>(sequence.tail.bytes());
  std::vector<std::byte> state(sizeof(positions) + slot.size() + n_tail);
  std::memcpy(state.data(), &positions, sizeof(positions));
  std::memcpy(state.data() + sizeof(positions), slot.data(), slot.size());
  if (n_tail == 0) return state;
  executor.memory().read(state.data() + sizeof(positions) + slot.size(), sequence.tail.data(),
                         sequence.tail.bytes());
  return state;
}

void unpack_state(Executor& executor, Sequence& sequence, std::span<const std::byte> state) {
  SequencePositions& positions = sequence.positions();
  const auto n_slot = static_cast<size_t>(executor.windows().slot_bytes());
  const auto n_tail = static_cast<size_t>(sequence.tail.bytes());
  FATHOM_CHECK(state.size() == sizeof(positions) + n_slot + n_tail);
  std::memcpy(&positions, state.data(), sizeof(positions));
  write_slot(executor, sequence, state.subspan(sizeof(positions), n_slot));
  if (n_tail == 0) return;
  executor.memory().write(sequence.tail.data(), state.data() + sizeof(positions) + n_slot,
                          sequence.tail.bytes());
}

bool fits_state(Executor& executor, const Sequence& sequence, const SessionState& state,
                int64_t n_tokens) {
  Sequence kept;
  const int64_t n_slot = executor.windows().slot_bytes();
  const int64_t wanted = static_cast<int64_t>(sizeof(SequencePositions)) + n_slot +
                         static_cast<int64_t>(sequence.tail.bytes());
  if (static_cast<int64_t>(state.windows.size()) != wanted) return false;
  const bool at_edge = n_tokens % kBlockTokens == 0;
  const int64_t n_partial = at_edge ? 0 : executor.blocks().block_bytes();
  if (static_cast<int64_t>(state.partial.size()) != n_partial) return false;
  std::memcpy(&kept.positions(), state.windows.data(), sizeof(SequencePositions));
  return kept.length == n_tokens && are_possible(kept.positions(), n_tokens) &&
         executor.can_branch(kept);
}

std::vector<std::byte> read_block(Executor& executor, BlockId id) {
  std::vector<std::byte> bytes(static_cast<size_t>(executor.blocks().block_bytes()));
  executor.memory().read(bytes.data(), block_of(executor, id), static_cast<int64_t>(bytes.size()));
  return bytes;
}

void write_block(Executor& executor, BlockId id, std::span<const std::byte> bytes) {
  FATHOM_CHECK(static_cast<int64_t>(bytes.size()) == executor.blocks().block_bytes());
  executor.memory().write(block_of(executor, id), bytes.data(), static_cast<int64_t>(bytes.size()));
}

}  // namespace fathom
