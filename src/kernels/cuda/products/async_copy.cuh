#pragma once

/// Copies from memory into shared memory that run by themselves, and the barriers that tell when
/// they have arrived. PTX ISA, sections "cp.async.bulk.tensor", "mbarrier" and "fence"; compute
/// capability 9.0.
///
/// A barrier's phases complete one after another; waiting names the parity of the one meant.

#include <cuda.h>

#include <cstdint>

namespace slime::kernels::cuda {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

__device__ inline uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

__device__ inline void init_barrier(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

/// Makes initialised barriers visible to copies.
__device__ inline void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ inline void arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/// One arrival that also announces bytes: the phase completes when they have been copied.
__device__ inline void arrive_expecting(uint32_t barrier, uint32_t bytes) {
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

/// A tile of a matrix (kernels/cuda/products/tile_map.h), to an address that is a multiple of 1024.
__device__ inline void copy_tile(uint32_t to, const CUtensorMap& map, int row, int slab,
                                 uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(to),
      "l"(&map), "r"(0), "r"(row), "r"(slab), "r"(barrier)
      : "memory");
}

/// A way to read what is read once: it is the first to leave the L2 cache.
__device__ inline uint64_t first_to_leave() {
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

/// A tile that is read once.
__device__ inline void copy_tile_once(uint32_t to, const CUtensorMap& map, int row, int slab,
                                      uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(to),
      "l"(&map), "r"(0), "r"(row), "r"(slab), "r"(barrier), "l"(first_to_leave())
      : "memory");
}

/// A tile of groups of rows (group_tile_map()), read once.
__device__ inline void copy_group_once(uint32_t to, const CUtensorMap& map, int row, int slab,
                                       uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%2, %3, %2, %4}], [%5], %6;" ::"r"(to),
      "l"(&map), "r"(0), "r"(row), "r"(slab), "r"(barrier), "l"(first_to_leave())
      : "memory");
}

/// A tile of pairs (pair_tile_map()), read once; `four`: the first pair's number divided by four.
__device__ inline void copy_pairs_once(uint32_t to, const CUtensorMap& map, int four, int slab,
                                       uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%2, %2, %2, %3, %4}], [%5], %6;" ::"r"(to),
      "l"(&map), "r"(0), "r"(four), "r"(slab), "r"(barrier), "l"(first_to_leave())
      : "memory");
}

/// The description of the matrix itself.
__device__ inline void prefetch_map(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

/// Between ordinary reads and writes of shared memory and a copy to the same place.
__device__ inline void let_copies_write() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/// Between what ordinary stores of other blocks wrote, as an acquire made visible, and copies.
__device__ inline void let_copies_see() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

#endif

}  // namespace slime::kernels::cuda
