#pragma once

/// Arguments of the kernel of kernels/cuda/products/narrow_product.h, and its prologues: from global memory to x in shared
/// memory.

#include <cuda.h>

#include "kernels/cuda/partial_sums.cuh"
#include "kernels/cuda/products/narrow_product.h"
#include "kernels/cuda/products/narrow_product_tiling.h"
#include "kernels/cuda/tensor_core.cuh"

namespace slime::kernels::cuda::narrow {

inline constexpr int kThreads = 32 * kWarps;  // consumers; a producer warp comes on top

struct Arguments {
  CUtensorMap weights;
  BatchProduct call;
  NormPrologue norm;
  Tiling tiling;
  SharedLayout layout;
  int processors = 0;
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

__device__ inline void store_shared(uint32_t address, uint2 x) {
  asm volatile("st.shared.v2.u32 [%0], {%1, %2};" ::"r"(address), "r"(x.x), "r"(x.y) : "memory");
}
__device__ inline void store_shared(uint32_t address, uint4 x) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(x.x), "r"(x.y),
               "r"(x.z), "r"(x.w)
               : "memory");
}
__device__ inline uint2 load_shared_pair(uint32_t address) {
  uint2 x;
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(x.x), "=r"(x.y) : "r"(address) : "memory");
  return x;
}

__device__ inline float4 unpack_four(uint2 four) {
  const float2 low = unpack<__nv_bfloat16>(four.x), high = unpack<__nv_bfloat16>(four.y);
  return make_float4(low.x, low.y, high.x, high.y);
}
__device__ inline uint2 pack_four(const float4& x) {
  return make_uint2(pack<__nv_bfloat16>(x.x, x.y), pack<__nv_bfloat16>(x.z, x.w));
}

inline constexpr int kLoadsInFlight = 4;  // of x, a thread

/// Prologue without a norm: copies x into shared memory.
__device__ inline void load_x(const Arguments& a, uint32_t x) {
  const int pieces = a.call.inputs / 8, row_bytes = SharedLayout::row_bytes(a.call.inputs);
  const auto* from = static_cast<const uint4*>(a.call.x_TI);
  grid_dependency_wait();
  for (int row = 0; row < a.call.rows; ++row) {
    for (int begin = threadIdx.x; begin < pieces; begin += kLoadsInFlight * kThreads) {
      uint4 held[kLoadsInFlight];
#pragma unroll
      for (int h = 0; h < kLoadsInFlight; ++h) {
        const int i = begin + h * kThreads;
        if (i < pieces) held[h] = __ldcg(from + row * pieces + i);
      }
#pragma unroll
      for (int h = 0; h < kLoadsInFlight; ++h) {
        const int i = begin + h * kThreads;
        if (i < pieces) store_shared(x + row * row_bytes + 16 * i, held[h]);
      }
    }
  }
}

/// Adds the weighted sum of a row's visits to the thread's pieces, of which h is `begin + h * kThreads`,
/// four numbers. Eight visits of two pieces are asked for at once: a loop that adds what it has just
/// asked for waits in each round (kernels/cuda/partial_sums.cuh).
__device__ inline void add_visits(const NormPrologue& norm, int row, int begin, int fours,
                                  float4 (&more)[kLoadsInFlight]) {
  constexpr int kVisits = 8, kPieces = 2;
  const auto* visits = static_cast<const uint2*>(norm.visits_TKI) + row * norm.per_token * fours;
  const float* weights = norm.visit_weight_TK + row * norm.per_token;
#pragma unroll
  for (int first = 0; first < kLoadsInFlight; first += kPieces) {
    if (begin + first * kThreads >= fours) continue;
    float4 sum[kPieces] = {};
#pragma unroll 1
    for (int visit = 0; visit < norm.per_token; visit += kVisits) {
      float weight[kVisits];
      uint2 x[kPieces][kVisits];
#pragma unroll
      for (int k = 0; k < kVisits; ++k)
        weight[k] = visit + k < norm.per_token ? __ldcg(weights + visit + k) : 0.0F;
#pragma unroll
      for (int p = 0; p < kPieces; ++p)
#pragma unroll
        for (int k = 0; k < kVisits; ++k) {
          const int i = begin + (first + p) * kThreads;
          x[p][k] = make_uint2(0, 0);
          if (i < fours && visit + k < norm.per_token)
            x[p][k] = __ldcg(visits + (visit + k) * fours + i);
        }
#pragma unroll
      for (int p = 0; p < kPieces; ++p)
#pragma unroll
        for (int k = 0; k < kVisits; ++k) {
          const float4 four = unpack_four(x[p][k]);
          sum[p].x += weight[k] * four.x, sum[p].y += weight[k] * four.y;
          sum[p].z += weight[k] * four.z, sum[p].w += weight[k] * four.w;
        }
    }
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
      // The shared expert's result is added to the rounded sum, as training does.
      sum[p] = unpack_four(pack_four(sum[p]));
      add_to(sum[p], unpack_four(pack_four(more[first + p])));
      more[first + p] = sum[p];
    }
  }
}

/// Prologue with the norm: x = (residual + added) * weight goes into shared memory. The division by
/// the root mean square is left to the epilogue, which gets the warps' sums of squares. `weight`:
/// shared memory for the norm's weights, 2 bytes an input.
__device__ inline void load_normed_x(const Arguments& a, uint32_t x, uint32_t weight,
                                     float (&squares_of_warps)[kMostRows][kWarps]) {
  const int fours = a.call.inputs / 4, row_bytes = SharedLayout::row_bytes(a.call.inputs);
  const int thread = threadIdx.x;
  // Each thread reads back only what it wrote itself.
  for (int i = thread; i < fours; i += kThreads)
    store_shared(weight + 8 * i, static_cast<const uint2*>(a.norm.weight_I)[i]);
  const auto* residual = static_cast<const uint2*>(a.norm.residual_TI);
  const auto* added = reinterpret_cast<const float4*>(a.norm.added_TI);
  auto* sum = static_cast<uint2*>(a.norm.sum_TI);
  grid_dependency_wait();
  for (int row = 0; row < a.call.rows; ++row) {
    float squares = 0;
    for (int begin = thread; begin < fours; begin += kLoadsInFlight * kThreads) {
      uint2 held[kLoadsInFlight];
      float4 more[kLoadsInFlight];
#pragma unroll
      for (int h = 0; h < kLoadsInFlight; ++h) {
        const int i = begin + h * kThreads;
        if (i >= fours) continue;
        held[h] = __ldcg(residual + row * fours + i);
        more[h] = added != nullptr ? __ldcg(added + row * fours + i) : make_float4(0, 0, 0, 0);
      }
      if (a.norm.visits_TKI != nullptr) add_visits(a.norm, row, begin, fours, more);
#pragma unroll
      for (int h = 0; h < kLoadsInFlight; ++h) {
        const int i = begin + h * kThreads;
        if (i >= fours) continue;
        more[h] = unpack_four(pack_four(more[h]));  // as where the product's result is stored
        const float4 old = unpack_four(held[h]), by = unpack_four(load_shared_pair(weight + 8 * i));
        const uint2 rounded = pack_four(make_float4(old.x + more[h].x, old.y + more[h].y,
                                                    old.z + more[h].z, old.w + more[h].w));
        const float4 s = unpack_four(rounded);
        store_shared(x + row * row_bytes + 8 * i,
                     pack_four(make_float4(s.x * by.x, s.y * by.y, s.z * by.z, s.w * by.w)));
        squares += s.x * s.x + s.y * s.y + s.z * s.z + s.w * s.w;
        if (blockIdx.x == 0) sum[row * fours + i] = rounded;
      }
    }
    squares = warp_sum(squares);
    if (thread % 32 == 0) squares_of_warps[row][thread / 32] = squares;
  }
}

#endif

}  // namespace slime::kernels::cuda::narrow
