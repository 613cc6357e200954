#include "cache/kv_pool.h"

namespace fathom {

template <typename Id>
Result<PiecePool<Id>> PiecePool<Id>::make(int64_t piece_bytes, int64_t n, const char* what,
                                          DeviceMemory& memory) {
  FATHOM_CHECK(n >= 0);
  FATHOM_ASSIGN_OR_RETURN(Buffer pieces, memory.allocate(n * piece_bytes, what));
  return PiecePool(piece_bytes, n, what, std::move(pieces));
}

template <typename Id>
PiecePool<Id>::PiecePool(int64_t piece_bytes, int64_t n, const char* what, Buffer memory)
    : piece_bytes_(piece_bytes),
      what_(what),
      memory_(std::move(memory)),
      held_(static_cast<size_t>(n)) {
  for (int64_t i = n; i-- > 0;) free_.push_back(static_cast<Id>(i));  // the smallest on top
}

template <typename Id>
Result<Id> PiecePool<Id>::allocate() {
  if (free_.empty()) {
    return exhausted(std::string(what_) + ": all " + std::to_string(held_.size()) + " are in use");
  }
  const Id id = free_.back();
  free_.pop_back();
  held_[static_cast<size_t>(id)] = true;
  return id;
}

template <typename Id>
void PiecePool<Id>::release(Id id) {
  FATHOM_CHECK(static_cast<size_t>(id) < held_.size());
  FATHOM_CHECK(held_[static_cast<size_t>(id)]);
  held_[static_cast<size_t>(id)] = false;
  free_.push_back(id);
}

template class PiecePool<BlockId>;
template class PiecePool<WindowId>;

Result<KvPool> KvPool::make(const KvSpec& spec, int64_t n_blocks, DeviceMemory& memory) {
  FATHOM_ASSIGN_OR_RETURN(PiecePool pool,
                          PiecePool::make(spec.block_bytes(), n_blocks, "KV blocks", memory));
  return KvPool(std::move(pool));
}

Result<WindowPool> WindowPool::make(const KvSpec& spec, int64_t n_slots, DeviceMemory& memory) {
  FATHOM_ASSIGN_OR_RETURN(PiecePool pool,
                          PiecePool::make(spec.session_bytes(), n_slots, "window slots", memory));
  return WindowPool(std::move(pool));
}

}  // namespace fathom
