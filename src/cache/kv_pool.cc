#include "cache/kv_pool.h"

namespace fathom {
namespace {

// A stack of all ids, the smallest on top.
template <typename Id>
std::vector<Id> all_ids(int64_t n) {
  std::vector<Id> ids;
  for (int64_t i = n; i-- > 0;) ids.push_back(static_cast<Id>(i));
  return ids;
}

template <typename Id>
Result<Id> take(std::vector<Id>& free, std::vector<bool>& held, const char* what) {
  if (free.empty()) {
    return exhausted(std::string(what) + ": all " + std::to_string(held.size()) + " are in use");
  }
  const Id id = free.back();
  free.pop_back();
  held[static_cast<size_t>(id)] = true;
  return id;
}

template <typename Id>
void give_back(std::vector<Id>& free, std::vector<bool>& held, Id id) {
  FATHOM_CHECK(static_cast<size_t>(id) < held.size());
  FATHOM_CHECK(held[static_cast<size_t>(id)]);
  held[static_cast<size_t>(id)] = false;
  free.push_back(id);
}

}  // namespace

Result<KvPool> KvPool::make(const KvSpec& spec, int64_t n_blocks, DeviceMemory& memory) {
  FATHOM_CHECK(n_blocks >= 0);
  FATHOM_ASSIGN_OR_RETURN(Buffer blocks,
                          memory.allocate(n_blocks * spec.block_bytes(), "KV blocks"));
  return KvPool(spec.block_bytes(), std::move(blocks), n_blocks);
}

KvPool::KvPool(int64_t block_bytes, Buffer memory, int64_t n_blocks)
    : block_bytes_(block_bytes),
      n_blocks_(n_blocks),
      memory_(std::move(memory)),
      free_(all_ids<BlockId>(n_blocks)),
      held_(static_cast<size_t>(n_blocks)) {}

Result<BlockId> KvPool::allocate() { return take(free_, held_, "KV blocks"); }

void KvPool::release(BlockId id) { give_back(free_, held_, id); }

Result<WindowPool> WindowPool::make(const KvSpec& spec, int64_t n_slots, DeviceMemory& memory) {
  FATHOM_CHECK(n_slots >= 0);
  FATHOM_ASSIGN_OR_RETURN(Buffer slots,
                          memory.allocate(n_slots * spec.session_bytes(), "window slots"));
  return WindowPool(spec.session_bytes(), std::move(slots), n_slots);
}

WindowPool::WindowPool(int64_t slot_bytes, Buffer memory, int64_t n_slots)
    : slot_bytes_(slot_bytes),
      memory_(std::move(memory)),
      free_(all_ids<WindowId>(n_slots)),
      held_(static_cast<size_t>(n_slots)) {}

Result<WindowId> WindowPool::allocate() { return take(free_, held_, "window slots"); }

void WindowPool::release(WindowId id) { give_back(free_, held_, id); }

}  // namespace fathom
