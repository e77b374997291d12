#pragma once

/// The kernel of kernels/cuda/products/batch_product.h.
///
/// A block has up to 192 outputs (weight rows) and a part of the inputs. One thread asks for
/// weights and another for x, tile by tile, through a ring in shared memory; each group of four
/// warps multiplies 64 of the outputs with all rows of x. Where outputs end within a group's 64, it
/// multiplies what happens to lie there, and nobody looks at the result.

#include "kernels/cuda/products/async_copy.cuh"
#include "kernels/cuda/products/batch_product_ends.cuh"
#include "kernels/cuda/products/ring.cuh"
#include "kernels/cuda/products/warpgroup.cuh"

namespace slime::kernels::cuda::batch {

struct Barriers {
  uint64_t full[kMaxStages], x_full[kMaxStages], empty[kMaxStages];
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// By one thread.
template <int kSlabs>
__device__ void ask_for_weights(const Arguments& a, const Ring& ring, int begin, int end) {
  const bool is_pairs = a.cut.is_pairs;
  const int tile = 128 * a.cut.box, first = blockIdx.x * a.cut.box;
  const int bytes = kSlabs * (is_pairs ? 2 * tile : tile);
  Place place, oldest;  // oldest: of what may be on its way
  for (int chunk = begin; chunk < end; ++chunk) {
    if (chunk - begin >= ring.stages) wait(ring.empty + 8 * place.slot, place.round ^ 1);
    if (chunk - begin >= a.layout.at_once) {
      wait(ring.full + 8 * oldest.slot, oldest.round);
      oldest.advance(1, ring.stages);
    }
    const uint32_t barrier = ring.full + 8 * place.slot;
    const uint32_t to = ring.memory + place.slot * a.layout.slot_bytes;
    arrive_expecting(barrier, bytes);
    if (is_pairs) {
      // Of each slab gates, then ups.
      for (int s = 0; s < kSlabs; ++s) {
        const int slab = chunk * kSlabs + s;
        copy_tile_once(to + 2 * s * tile, a.weights, first, slab, barrier);
        copy_tile_once(to + (2 * s + 1) * tile, a.weights, a.units + first, slab, barrier);
      }
    } else {
      copy_tile_once(to, a.weights, first, chunk * kSlabs, barrier);
    }
    place.advance(1, ring.stages);
  }
}

/// By another one, when the kernels before this one are done.
template <int kSlabs>
__device__ void ask_for_x(const Arguments& a, const Ring& ring, uint32_t x_full, int begin,
                          int end) {
  prefetch_map(a.x);
  wait_for_inputs();
  let_copies_see();
  Place place;
  for (int chunk = begin; chunk < end; ++chunk) {
    if (chunk - begin >= ring.stages) wait(ring.empty + 8 * place.slot, place.round ^ 1);
    const uint32_t barrier = x_full + 8 * place.slot;
    arrive_expecting(barrier, 128 * kSlabs * a.layout.x_rows);
    copy_tile(ring.memory + place.slot * a.layout.slot_bytes + a.layout.x_begin, a.x, 0,
              chunk * kSlabs, barrier);
    place.advance(1, ring.stages);
  }
}

/// The sums of this group's outputs.
template <int kRows, int kSlabs>
__device__ void multiply_tiles(const Arguments& a, const Ring& ring, uint32_t x_full, int count,
                               int group, float (&sum)[kRows / 2]) {
  const int outputs = a.cut.block_outputs();
  Place place;
  int last = 0;
  for (int i = 0; i < count; ++i) {
    wait(ring.full + 8 * place.slot, place.round);
    wait(x_full + 8 * place.slot, place.round);
    const uint32_t stage = ring.memory + place.slot * a.layout.slot_bytes;
    const uint32_t weights = stage + 128 * kGroupOutputs * group;
    const uint32_t x = stage + a.layout.x_begin;
    begin_products();
#pragma unroll
    for (int slab = 0; slab < kSlabs; ++slab) {
      const uint64_t w_operand = operand_at(weights + 128 * slab * outputs);
      const uint64_t x_operand = operand_at(x + 128 * slab * a.layout.x_rows);
#pragma unroll
      for (int k = 0; k < 4; ++k) multiply_add(sum, w_operand + 2 * k, x_operand + 2 * k);
    }
    end_products();
    if (i > 0) {
      await_products<1>();
      if (threadIdx.x % 128 == 0) arrive(ring.empty + 8 * last);
    }
    last = place.slot;
    place.advance(1, ring.stages);
  }
  await_products<0>();
}

#endif

/// kRows: of x, with those that are not there. kSlabs: Cut::slabs.
template <int kRows, int kSlabs>
__global__ void __launch_bounds__(128 * kMostGroups + kAskers)
    batch_product_kernel(const __grid_constant__ Arguments a) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) unsigned char memory[];
  __shared__ Barriers barriers;
  const int threads = static_cast<int>(blockDim.x) - kAskers, group = threadIdx.x / 128;
  const Ring ring{shared_address(memory), shared_address(barriers.full),
                  shared_address(barriers.empty), a.layout.stages};
  const uint32_t x_full = shared_address(barriers.x_full);
  const int part = blockIdx.y, begin = a.cut.chunks * part / a.cut.parts,
            end = a.cut.chunks * (part + 1) / a.cut.parts;
  let_next_start();
  if (threadIdx.x == threads) {
    prefetch_map(a.weights);
    for (int i = 0; i < a.layout.stages; ++i) {
      init_barrier(ring.full + 8 * i, 1);
      init_barrier(x_full + 8 * i, 1);
      init_barrier(ring.empty + 8 * i, threads / 128);
    }
    publish_barriers();
  }
  __syncthreads();
  if (threadIdx.x >= threads) {
    if (threadIdx.x == threads) ask_for_weights<kSlabs>(a, ring, begin, end);
    if (threadIdx.x == threads + 32) ask_for_x<kSlabs>(a, ring, x_full, begin, end);
    return;
  }
  wait_for_inputs();
  float sum[kRows / 2] = {};
  multiply_tiles<kRows, kSlabs>(a, ring, x_full, end - begin, group, sum);
  if (a.ending == Ending::kParts) {
    write_parts<kRows>(a, group, sum);
  } else {
    write_outputs<kRows>(a, reinterpret_cast<float*>(memory), group, threads, sum);
  }
#endif
}

}  // namespace slime::kernels::cuda::batch
