#pragma once

/// What becomes of the sums of a product in a chain (kernels/cuda/product_chain.h).

#include "kernels/cuda/product_chain_ring.cuh"

namespace slime::kernels::cuda::chain {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

/// What a lane reads for its outputs of a row before the row's sums are there: outputs lane, lane +
/// 32, ...
template <typename T, int kHeld>
struct Held {
  T x[kHeld];

  __device__ void load(const void* row, const Range& range) {
#pragma unroll
    for (int j = 0; j < kHeld; ++j) {
      const int o = threadIdx.x % 32 + 32 * j;
      if (o < range.count) x[j] = static_cast<const T*>(row)[range.from + o];
    }
  }
};

/// What becomes of one row of a pass, by a warp: `sum(o)` is the product's o-th output or gate,
/// `sum(box + o)` the o-th up. Returns this lane's share of the sum of squares.
template <typename T, int kHeld, typename Sum>
__device__ float finish_row(const ChainLink& link, int row, const Range& range, int box,
                            float scale, const Held<T, kHeld>& residual, const Held<T, kHeld>& norm,
                            const Sum& sum) {
  const auto* bias = static_cast<const T*>(link.bias_O);
  const auto with_bias = [&](float x, int output) {
    return bias == nullptr ? x : x + to_float(bias[output]);
  };
  const bool is_pairs = link.ending == Ending::kSwiglu, is_sum = link.ending == Ending::kAdd;
  const int width = is_pairs ? link.outputs / 2 : link.outputs;
  const int64_t place = static_cast<int64_t>(row) * width + range.from;
  T* y = static_cast<T*>(link.y) + place;
  float squares = 0;
#pragma unroll
  for (int j = 0; j < kHeld; ++j) {
    const int o = threadIdx.x % 32 + 32 * j;
    if (o >= range.count) break;
    float value = with_bias(scale * sum(o), range.from + o);
    if (is_pairs) {
      const float up = with_bias(scale * sum(box + o), width + range.from + o);
      value = value / (1.0F + __expf(-value)) * up;
    } else if (is_sum) {
      const T added = from_float<T>(to_float(residual.x[j]) + value);
      static_cast<T*>(link.sum_TO)[place + o] = added;
      value = to_float(added);
      squares += value * value;
      value *= to_float(norm.x[j]);
    }
    if (link.float_result) {
      static_cast<float*>(link.y)[place + o] = value;
    } else {
      y[o] = from_float<T>(value);
    }
  }
  return squares;
}

#endif

}  // namespace slime::kernels::cuda::chain
