#pragma once

/// Asynchronous tensor copies (TMA) from global into shared memory, and the mbarriers that track
/// their completion, and copies by threads. PTX ISA, sections "cp.async.bulk.tensor", "mbarrier",
/// "fence" and "cp.async"; compute capability 9.0, but for the last ones, which need 8.0.
///
/// Barriers and destinations are shared-memory addresses. A barrier's phases complete one after
/// another; wait() names the parity of the phase meant.

#include <cuda.h>

#include <cstdint>

#include "kernels/cuda/vendor/vendor.cuh"

namespace slime::kernels::cuda {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

__device__ inline void init_barrier(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

/// Makes initialised barriers visible to the async proxy.
__device__ inline void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ inline void arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/// One arrival that also adds `bytes` to the phase's pending transactions: it completes when they
/// have been copied.
__device__ inline void arrive_expect_tx(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

__device__ inline void wait(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra finished;\n"
      "bra again;\n"
      "finished:\n"
      "}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

/// The address in the cluster of what lies at `address` in the shared memory of its thread block `rank`.
__device__ inline uint32_t address_in(uint32_t address, int rank) {
  uint32_t there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}
/// Stores a number in the shared memory of a thread block of the cluster, where it counts as four bytes
/// of transactions at a barrier of that thread block. Both addresses are from address_in().
__device__ inline void send(uint32_t to, float x, uint32_t barrier) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" ::"r"(to), "f"(x),
      "r"(barrier)
      : "memory");
}

/// Copies a tile of a matrix (kernels/cuda/products/tile_map.h) to `to`, a multiple of 1024.
__device__ inline void copy_tile(uint32_t to, const CUtensorMap& map, int row, int slab,
                                 uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(to),
      "l"(&map), "r"(0), "r"(row), "r"(slab), "r"(barrier)
      : "memory");
}

/// L2 cache policy for what is read once: evict first.
__device__ inline uint64_t evict_first_policy() {
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

/// copy_tile() with evict_first_policy().
__device__ inline void copy_tile_once(uint32_t to, const CUtensorMap& map, int row, int slab,
                                      uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(to),
      "l"(&map), "r"(0), "r"(row), "r"(slab), "r"(barrier), "l"(evict_first_policy())
      : "memory");
}

/// A tile of groups of rows (group_tile_map()), read once.
__device__ inline void copy_group_once(uint32_t to, const CUtensorMap& map, int row, int slab,
                                       uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%2, %3, %2, %4}], [%5], %6;" ::"r"(to),
      "l"(&map), "r"(0), "r"(row), "r"(slab), "r"(barrier), "l"(evict_first_policy())
      : "memory");
}

/// A tile of pairs (pair_tile_map()), read once; `four`: the first pair's number divided by four.
__device__ inline void copy_pairs_once(uint32_t to, const CUtensorMap& map, int four, int slab,
                                       uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%2, %2, %2, %3, %4}], [%5], %6;" ::"r"(to),
      "l"(&map), "r"(0), "r"(four), "r"(slab), "r"(barrier), "l"(evict_first_policy())
      : "memory");
}

/// Rows of a matrix (row_map()).
__device__ inline void copy_rows(uint32_t to, const CUtensorMap& map, int column, int row,
                                 uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3}], [%4];" ::"r"(to),
      "l"(&map), "r"(column), "r"(row), "r"(barrier)
      : "memory");
}

/// The other way: rows from shared memory, as copy_rows() would leave them there. What this thread has
/// stored so since the last commit_stores() is a group of stores.
__device__ inline void store_rows(const CUtensorMap& map, int column, int row, uint32_t from) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(
          &map),
      "r"(column), "r"(row), "r"(from)
      : "memory");
}
__device__ inline void commit_stores() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
/// Waits until this thread's groups of stores no longer need shared memory.
__device__ inline void wait_for_read_stores() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
/// Waits until they are in global memory.
__device__ inline void wait_for_stores() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

/// copy_rows() with evict_first_policy().
__device__ inline void copy_rows_once(uint32_t to, const CUtensorMap& map, int column, int row,
                                      uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
      "l"(&map), "r"(column), "r"(row), "r"(barrier), "l"(evict_first_policy())
      : "memory");
}

/// One arrival as soon as all that this thread has asked for by copy_piece() is there.
__device__ inline void arrive_with_pieces(uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}
/// Asks for a line of memory, for whoever reads it later.
__device__ inline void prefetch_to_l2(const void* line) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(line));
}

/// The same of `bytes` in one piece. Both are multiples of 16.
__device__ inline void prefetch_piece_to_l2(const void* from, uint32_t bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}

/// Prefetches the descriptor of the matrix.
__device__ inline void prefetch_map(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

/// Proxy fence between ordinary accesses of shared memory and a later copy to the same addresses.
__device__ inline void fence_async_shared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/// Proxy fence between ordinary stores to global memory by other thread blocks, made visible by an
/// acquire, and later copies of it.
__device__ inline void fence_async_global() {
  asm volatile("fence.proxy.async.global;" ::: "memory");
}

#endif

}  // namespace slime::kernels::cuda
