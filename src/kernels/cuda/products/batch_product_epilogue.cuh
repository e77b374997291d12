#pragma once

/// Arguments of the kernel of kernels/cuda/products/batch_product.h, and its epilogues: from a
/// thread block's accumulators to global memory.

#include <cuda.h>

#include "kernels/cuda/products/batch_product.h"
#include "kernels/cuda/products/batch_product_tiling.h"
#include "kernels/cuda/products/pipeline.cuh"
#include "kernels/cuda/tensor_core.cuh"

namespace slime::kernels::cuda::batch {

using Epilogue = BatchProduct::Epilogue;

struct Arguments {
  CUtensorMap weights, x;
  const __nv_bfloat16* bias_O = nullptr;
  void* y = nullptr;
  Tiling tiling;
  Epilogue epilogue = Epilogue::kStore;
  bool float_result = false;
  int rows = 0, units = 0;  // units: outputs, or gate-up pairs
  const void* x_TI = nullptr;
  int inputs = 0;
  SharedLayout layout;
  LowRankAddition addition;
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// Epilogue of split-K: accumulators go to memory as they are, float32 [split, row, output]. A warp
/// writes 32 contiguous bytes for each of four rows.
template <int kRows>
__device__ void write_partial_sums(const Arguments& a, int group, const float (&sum)[kRows / 2]) {
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  const int local = kGroupOutputs * group + 16 * warp + lane / 4;
  const int first = blockIdx.x * a.tiling.box;
  auto* y = static_cast<float*>(a.y) + static_cast<int64_t>(blockIdx.y) * a.rows * a.units;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int output = local + 8 * half;
    if (output >= a.tiling.box || first + output >= a.units) continue;
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

/// Accumulators into shared memory, float32 [row, output]. `sums`: SharedLayout::sums_bytes() bytes.
template <int kRows>
__device__ void store_sums(float* sums, int outputs, int pitch, int group,
                           const float (&sum)[kRows / 2]) {
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
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
}

/// Epilogues kStore and kSwiglu of sums in shared memory. By `threads`, of which this is number `thread`.
__device__ inline void write_stored(const Arguments& a, float* sums, int box, int pitch, int thread,
                                    int threads) {
  const int first = blockIdx.x * box, pieces = min(box, a.units - first) / kPiece;
  for (int n = thread; n < a.rows * pieces; n += threads) {
    const int row = n / pieces, output = n % pieces * kPiece;
    const auto read = [&](int from, int bias) {
      const float4 x = *reinterpret_cast<const float4*>(sums + row * pitch + from);
      return a.bias_O == nullptr ? x : sum_of(x, a.bias_O + bias);
    };
    float4 x = read(output, first + output);
    const int64_t offset = static_cast<int64_t>(row) * a.units + first + output;
    if (a.float_result) {
      *reinterpret_cast<float4*>(static_cast<float*>(a.y) + offset) = x;
      continue;
    }
    auto* y = static_cast<__nv_bfloat16*>(a.y) + offset;
    if (a.tiling.is_pairs) {
      const float4 up = read(box + output, a.units + first + output);
      x = make_float4(gated<__nv_bfloat16>(x.x, up.x), gated<__nv_bfloat16>(x.y, up.y),
                      gated<__nv_bfloat16>(x.z, up.z), gated<__nv_bfloat16>(x.w, up.w));
    }
    *reinterpret_cast<uint2*>(y) =
        make_uint2(pack<__nv_bfloat16>(x.x, x.y), pack<__nv_bfloat16>(x.z, x.w));
  }
}

/// Epilogues kStore and kSwiglu. Accumulators pass through shared memory, so that stores to global memory are coalesced.
template <int kRows>
__device__ void write_outputs(const Arguments& a, float* sums, int group, int threads,
                              const float (&sum)[kRows / 2]) {
  const int box = a.tiling.box, outputs = a.tiling.block_outputs(),
            pitch = SharedLayout::pitch(a.tiling);
  sync_consumers(threads);  // no warp still reads the stages that `sums` overlays
  store_sums<kRows>(sums, outputs, pitch, group, sum);
  sync_consumers(threads);
  write_stored(a, sums, box, pitch, threadIdx.x, threads);
}

#endif

}  // namespace slime::kernels::cuda::batch
