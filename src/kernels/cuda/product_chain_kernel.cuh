#pragma once

/// The kernel of kernels/cuda/product_chain.h: what its blocks and warps do.

#include "kernels/cuda/product_chain_finish.cuh"
#include "kernels/cuda/product_chain_pass.cuh"

namespace slime::kernels::cuda::chain {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

template <typename T, int kMostTiles, int kRowTiles>
__device__ void multiply_chain(const Arguments& a, const Ring& ring,
                               Workspace<kMostTiles, kRowTiles>& work) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  constexpr int kHeld = (16 * kMostTiles + 31) / 32;
  const auto num_blocks = static_cast<int>(gridDim.x);
  Place place;
  wait_for_inputs();
  for (int i = 0; i < a.num_links; ++i) {
    const ChainLink& link = a.links[i];
    const Cut& cut = a.cuts[i];
    const bool is_scaled = link.squares_TP != nullptr, is_sum = link.ending == Ending::kAdd;
    const int num_passes = cut.passes;
    Pass pass;
    pass.box = cut.box;
    pass.most_outputs = link.ending == Ending::kSwiglu ? 2 * cut.box : cut.box;
    pass.slabs = cut.slabs;
    pass.chunks = cut.chunks;
    pass.rows = a.rows;
    pass.stages = a.stages;
    pass.x_begin = cut.x_begin;
    pass.slot_bytes = a.slot_bytes;
    const int tiles = (pass.most_outputs + 15) / 16;

    // Of rows warp, warp + 8, ... With few rows the sums of squares are on their way while the
    // kernel multiplies.
    constexpr int kParts = kRowTiles == 1 ? kSquaresPerLane : 1;
    float scale[kRowTiles], squares[kRowTiles] = {}, parts[kRowTiles][kParts] = {};
    if (is_scaled) {
      wait(ring.full + 8 * place.slot, place.round);  // the product before is complete
#pragma unroll
      for (int n = 0; n < kRowTiles; ++n) {
#pragma unroll
        for (int j = 0; j < kSquaresPerLane; ++j) {
          const int row = 8 * n + warp, block = lane + 32 * j;
          if (row < a.rows && block < num_blocks)
            parts[n][j % kParts] += __ldcg(link.squares_TP + row * num_blocks + block);
        }
      }
    }
    for (int number = 0; number < num_passes; ++number) {
      const Range range(link, cut, number);
      Held<T, kHeld> residual[kRowTiles], norm;
      if (is_sum) {
        norm.load(link.norm_O, range);
#pragma unroll
        for (int n = 0; n < kRowTiles; ++n)
          if (8 * n + warp < a.rows)
            residual[n].load(static_cast<const T*>(link.residual_TO) +
                                 static_cast<int64_t>(8 * n + warp) * link.outputs,
                             range);
      }
      const auto finish = [&](int n) {
        if (number == 0) {
          float total = 0;
#pragma unroll
          for (int j = 0; j < kParts; ++j) total += parts[n][j];
          total = warp_sum(total) / static_cast<float>(link.inputs);
          scale[n] = is_scaled ? rsqrtf(total + link.eps) : 1.0F;
        }
        squares[n] += finish_row<T>(link, 8 * n + warp, range, pass.box, scale[n], residual[n],
                                    norm, [&](int o) {
                                      float total = 0;
#pragma unroll
                                      for (int w = 0; w < kWarps; ++w)
                                        total += work.partial[w][warp][o];
                                      return total;
                                    });
      };
      switch (tiles) {
        case 1:
          multiply_pass<T, 1, kRowTiles>(pass, ring, place, work.partial, finish);
          break;
        case 2:
          multiply_pass<T, 2, kRowTiles>(pass, ring, place, work.partial, finish);
          break;
        case 3:
          multiply_pass<T, 3, kRowTiles>(pass, ring, place, work.partial, finish);
          break;
        default:
          multiply_pass<T, kMostTiles, kRowTiles>(pass, ring, place, work.partial, finish);
      }
    }
    if (is_sum) {
#pragma unroll
      for (int n = 0; n < kRowTiles; ++n) {
        if (8 * n + warp >= a.rows) break;
        const float total = warp_sum(squares[n]);
        if (lane == 0) link.squares_out_TP[(8 * n + warp) * num_blocks + blockIdx.x] = total;
      }
    }
    if (i + 1 == a.num_links) break;
    sync_consumers();
    if (threadIdx.x == 0) add_release(a.counters + i + 1, 1);
  }
}

#endif

template <typename T, int kTiles, int kRowTiles>
__global__ void __launch_bounds__(kThreads, kRowTiles == 1 ? 2 : 1)
    product_chain_kernel(const __grid_constant__ Arguments a) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& work = *reinterpret_cast<Workspace<kTiles, kRowTiles>*>(memory + a.stages * a.slot_bytes);
  const Ring ring{shared_address(memory), shared_address(work.full), shared_address(work.empty),
                  shared_address(&work.input)};
  if (threadIdx.x == 0) {
    init_barrier(ring.input, 1);
    for (int i = 0; i < a.stages; ++i) {
      init_barrier(ring.full + 8 * i, 2);  // weights and x
      init_barrier(ring.empty + 8 * i, kWarps);
    }
    publish_barriers();
  }
  __syncthreads();
  const int warp = threadIdx.x / 32;
  if (warp < kWarps) {
    multiply_chain<T, kTiles, kRowTiles>(a, ring, work);
  } else if (threadIdx.x % 32 == 0) {
    warp == kWarps ? ask_for_weights(a, ring) : ask_for_x(a, ring);
  }
#endif
}

}  // namespace slime::kernels::cuda::chain
