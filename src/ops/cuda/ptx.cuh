#pragma once

// One wrapper for each PTX instruction the kernels for sm_90a use, under the instruction's meaning.
// Nothing here knows a model. Shared-memory operands are 32-bit addresses from shared_address().

#include <cuda_runtime.h>

#include <cstdint>

namespace fathom::cuda::ptx {

__device__ inline uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// Loads by address: through a pointer the compiler derives the window's base again at every use.
__device__ inline uint4 shared_load16(uint32_t at) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(at));
  return v;
}
__device__ inline uint2 shared_load8(uint32_t at) {
  uint2 v;
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(at));
  return v;
}
__device__ inline uint32_t shared_load1(uint32_t at) {
  uint32_t v = 0;
  asm volatile("ld.shared.u8 %0, [%1];" : "=r"(v) : "r"(at));
  return v;
}

// --- mbarrier ------------------------------------------------------------------------------------

__device__ inline void barrier_init(uint32_t barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
// Makes initialised barriers visible to the copy engine and to the cluster.
__device__ inline void barrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ inline void barrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ inline void barrier_expect(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
// Waits until the phase of this parity is over. What this block's threads and copies wrote is then
// visible.
__device__ inline void barrier_wait(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n .reg .pred p;\n"
      "again%=:\n mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
      " @!p bra again%=;\n}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}
// The same for what other blocks of the cluster wrote. It empties L1: not for a loop's every turn.
__device__ inline void barrier_wait_cluster(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n .reg .pred p;\n"
      "again%=:\n mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], %1;\n"
      " @!p bra again%=;\n}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// --- bulk copies (multiples of 16 bytes, 16-byte aligned) ----------------------------------------

// For weights, read once a step: they should leave L2 before activations do.
__device__ inline uint64_t evict_first_policy() {
  uint64_t policy = 0;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
__device__ inline void bulk_load(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier,
                                 uint64_t policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1], %2, [%3], %4;" ::"r"(to),
      "l"(from), "r"(bytes), "r"(barrier), "l"(policy)
      : "memory");
}
// For what other blocks read too.
__device__ inline void bulk_load(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}
// From this block's shared memory to that of a block of the cluster; both addresses of the target
// (data and barrier) come from cluster_address().
__device__ inline void bulk_send(uint32_t to, uint32_t from, uint32_t bytes, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes "
      "[%0], [%1], %2, [%3];" ::"r"(to),
      "r"(from), "r"(bytes), "r"(barrier)
      : "memory");
}
// Orders this thread's ordinary writes to shared memory before later reads by the copy engine or
// the tensor cores.
__device__ inline void proxy_fence() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// --- small asynchronous copies -------------------------------------------------------------------

// Copies 16 bytes, or writes 16 zero bytes when `valid` is false.
__device__ inline void copy16(uint32_t to, const void* from, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(valid ? 16 : 0)
               : "memory");
}
__device__ inline void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kLeft>
__device__ inline void copy_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}

// --- clusters ------------------------------------------------------------------------------------

__device__ inline uint32_t cluster_address(uint32_t address, uint32_t rank) {
  uint32_t out = 0;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(out) : "r"(address), "r"(rank));
  return out;
}
__device__ inline void cluster_store(uint32_t cluster_address, float value) {
  asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(cluster_address), "f"(value) : "memory");
}
// Arrives at a barrier of another block, after this thread's earlier writes.
__device__ inline void cluster_barrier_arrive(uint32_t cluster_address) {
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(cluster_address)
               : "memory");
}
// Orders this thread's writes to other blocks before what it, or a thread it then meets, releases.
__device__ inline void cluster_fence() { asm volatile("fence.acq_rel.cluster;" ::: "memory"); }
// Without ordering memory: behind barrier_init_fence().
__device__ inline void cluster_arrive_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ inline void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ inline void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// --- programmatic dependent launch ---------------------------------------------------------------

__device__ inline void launch_dependents() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}
// Returns when the grids this one depends on are complete and their writes are visible.
__device__ inline void wait_for_inputs() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// --- reads past L1 -------------------------------------------------------------------------------

__device__ inline uint4 stream16(const void* p) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p));
  return v;
}

__device__ inline uint32_t permute(uint32_t low, uint32_t high, uint32_t selector) {
  uint32_t out = 0;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(out) : "r"(low), "r"(high), "r"(selector));
  return out;
}

}  // namespace fathom::cuda::ptx
