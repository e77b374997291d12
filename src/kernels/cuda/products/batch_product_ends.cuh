#pragma once

/// What a block of kernels/cuda/products/batch_product.h is told, and what becomes of its sums.

#include <cuda.h>

#include "kernels/cuda/products/batch_product.h"
#include "kernels/cuda/products/batch_product_cut.h"
#include "kernels/cuda/products/ring.cuh"
#include "kernels/cuda/tensor_core.cuh"

namespace slime::kernels::cuda::batch {

using Ending = BatchProduct::Ending;

struct Arguments {
  CUtensorMap weights, x;
  const __nv_bfloat16* bias_O = nullptr;
  void* y = nullptr;
  Cut cut;
  Ending ending = Ending::kStore;
  bool float_result = false;
  int rows = 0, units = 0;  // units: outputs, or pairs
  SharedLayout layout;
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// A thread's sums as they are: a warp writes 32 bytes side by side for each of four rows.
template <int kRows>
__device__ void write_parts(const Arguments& a, int group, const float (&sum)[kRows / 2]) {
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  const int local = kGroupOutputs * group + 16 * warp + lane / 4;
  const int first = blockIdx.x * a.cut.box;
  auto* y = static_cast<float*>(a.y) + static_cast<int64_t>(blockIdx.y) * a.rows * a.units;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int output = local + 8 * half;
    if (output >= a.cut.box || first + output >= a.units) continue;
#pragma unroll
    for (int j = 0; j < kRows / 8; ++j) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int row = 8 * j + 2 * (lane % 4) + i;
        if (row < a.rows)
          y[static_cast<int64_t>(row) * a.units + first + output] = sum[4 * j + 2 * half + i];
      }
    }
  }
}

__device__ inline float4 sum_of(const float4& a, const __nv_bfloat16* b) {
  const uint2 four = *reinterpret_cast<const uint2*>(b);
  const float2 low = unpack<__nv_bfloat16>(four.x), high = unpack<__nv_bfloat16>(four.y);
  return make_float4(a.x + low.x, a.y + low.y, a.z + high.x, a.w + high.y);
}

/// By way of shared memory: [row, output].
template <int kRows>
__device__ void write_outputs(const Arguments& a, float* sums, int group, int threads,
                              const float (&sum)[kRows / 2]) {
  const int box = a.cut.box, outputs = a.cut.block_outputs(), pitch = SharedLayout::pitch(a.cut);
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  sync_groups(threads);  // the ring's tiles have been used
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int output = kGroupOutputs * group + 16 * warp + lane / 4 + 8 * half;
    if (output >= outputs) continue;
#pragma unroll
    for (int j = 0; j < kRows / 8; ++j) {
#pragma unroll
      for (int i = 0; i < 2; ++i)
        sums[(8 * j + 2 * (lane % 4) + i) * pitch + output] = sum[4 * j + 2 * half + i];
    }
  }
  sync_groups(threads);
  const int first = blockIdx.x * box, pieces = min(box, a.units - first) / kPiece;
  for (int n = threadIdx.x; n < a.rows * pieces; n += threads) {
    const int row = n / pieces, output = n % pieces * kPiece;
    const auto read = [&](int from, int bias) {
      const float4 x = *reinterpret_cast<const float4*>(sums + row * pitch + from);
      return a.bias_O == nullptr ? x : sum_of(x, a.bias_O + bias);
    };
    float4 x = read(output, first + output);
    const int64_t place = static_cast<int64_t>(row) * a.units + first + output;
    if (a.float_result) {
      *reinterpret_cast<float4*>(static_cast<float*>(a.y) + place) = x;
      continue;
    }
    auto* y = static_cast<__nv_bfloat16*>(a.y) + place;
    if (a.cut.is_pairs) {
      const float4 up = read(box + output, a.units + first + output);
      x = make_float4(silu(x.x) * up.x, silu(x.y) * up.y, silu(x.z) * up.z, silu(x.w) * up.w);
    }
    *reinterpret_cast<uint2*>(y) =
        make_uint2(pack<__nv_bfloat16>(x.x, x.y), pack<__nv_bfloat16>(x.z, x.w));
  }
}

#endif

}  // namespace slime::kernels::cuda::batch
