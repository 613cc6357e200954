#pragma once

// What kernels see of the rows of a step and of packed state (ops/rows.h, tensor/kv_view.h), and
// the copies of it on the device, made again only where the content changed.

#include <span>
#include <vector>

#include "ops/cuda/memory.h"
#include "ops/rows.h"
#include "tensor/kv_view.h"

namespace fathom::cuda {

struct SequenceEntry {
  int64_t n_rows;
  int64_t first_position;
  int64_t window_low;
  int64_t write_from;
  int64_t first_row;
};

// Pointers are of the device.
struct RowTable {
  const int64_t* position = nullptr;  // [N]
  const int64_t* sequence = nullptr;  // [N]
  const SequenceEntry* sequences = nullptr;
  int64_t n_rows = 0;
  int64_t n_sequences = 0;
};

struct BlockTable {
  uint8_t* base = nullptr;
  int64_t block_bytes = 0;
  const uint32_t* ids = nullptr;  // [S, stride]
  int64_t stride = 0;
  KvStream stream;
};

struct SlotTable {
  uint8_t* base = nullptr;
  int64_t slot_bytes = 0;
  const uint32_t* ids = nullptr;  // [S]
  KvStream stream;
};

// Host bytes and their copy.
class Mirror {
 public:
  struct Kept {
    std::vector<std::byte> bytes;
    Buffer copy;
  };

  explicit Mirror(Memory& memory) : memory_(memory) {}
  // The copy; null where the memory failed. While the memory records, every content has a copy of
  // its own.
  const void* update(std::span<const std::byte> bytes);
  // Those copies; they stay until they are dropped.
  std::span<const Kept> kept() const { return kept_; }
  void drop_kept() { kept_.clear(); }

 private:
  const void* keep(std::span<const std::byte> bytes);

  Memory& memory_;
  std::vector<Kept> kept_;
  std::vector<std::byte> last_;
  Buffer copy_;
};

class StepTables {
 public:
  explicit StepTables(Memory& memory) : rows_(memory), blocks_(memory), slots_(memory) {}

  RowTable rows(const Rows& rows);
  BlockTable blocks(const KvView& view);
  SlotTable slots(const SlotView& view);

  // Tables of rows that were made while the memory recorded, each of one row a sequence.
  std::span<const Mirror::Kept> kept_rows() const { return rows_.kept(); }
  void drop_kept();

 private:
  Mirror rows_;
  Mirror blocks_;
  Mirror slots_;
};

}  // namespace fathom::cuda
