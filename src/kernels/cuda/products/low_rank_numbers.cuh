#pragma once

/// Device functions of the kernels beside products of matrices with adapters (kernels/cuda/products/low_rank.h).

#include <stdexcept>

#include "kernels/cuda/products/low_rank.h"
#include "kernels/cuda/tensor_core.cuh"

namespace slime::kernels::cuda::low_rank {

inline constexpr int kThreads = 128, kWarps = 4;
inline constexpr int kRanks = 32;  // of a thread block on the way down, of a step on the way up
inline constexpr int kPad = 4;     // words behind a line of shared memory
inline constexpr int kRankPairs = kRanks / 2;

#if SLIME_DEVICE_CODE

/// Numbers (m, r) and (m, r + 1).
__device__ inline float2 two_of_row(const LowRankFactor& factor, int m, int r) {
  const auto at = [&](int of_r) {
    if (m < 0 || m >= factor.end - factor.begin || of_r >= factor.rank) return 0.0F;
    return factor.is_turned ? factor.values[of_r * factor.pitch + m]
                            : factor.values[m * factor.pitch + of_r];
  };
  return make_float2(at(r), at(r + 1));
}

/// Whether a factor's lines are read 16 bytes at once.
__device__ inline bool has_whole_fours(const LowRankFactor& factor) {
  return reinterpret_cast<uintptr_t>(factor.values) % 16 == 0 && factor.pitch % 4 == 0;
}

/// Numbers [0, count) of four in memory, 0 behind them.
__device__ inline float4 four_of(const float* from, int count, bool is_whole) {
  if (is_whole && count >= 4) return *reinterpret_cast<const float4*>(from);
  return make_float4(count > 0 ? from[0] : 0.0F, count > 1 ? from[1] : 0.0F,
                     count > 2 ? from[2] : 0.0F, count > 3 ? from[3] : 0.0F);
}

/// Numbers (m, r) to (m, r + 3) of a factor that is not turned, or (m, r) to (m + 3, r) of one that is; 0 outside.
__device__ inline float4 four_of_line(const LowRankFactor& factor, int m, int r, bool is_whole) {
  const int size = factor.end - factor.begin;
  if (m < 0 || m >= size || r >= factor.rank) return make_float4(0, 0, 0, 0);
  return factor.is_turned
             ? four_of(factor.values + r * factor.pitch + m, size - m, is_whole)
             : four_of(factor.values + m * factor.pitch + r, factor.rank - r, is_whole);
}

__device__ inline float number_of_four(const float4& four, int i) {
  return i == 0 ? four.x : i == 1 ? four.y : i == 2 ? four.z : four.w;
}

/// Of whole blocks.
__device__ inline int rounded_rank(const LowRankFactor& factor) {
  return (factor.rank + kRanks - 1) / kRanks * kRanks;
}

#endif

inline unsigned blocks_of(int64_t numbers, int64_t each) {
  return static_cast<unsigned>((numbers + each - 1) / each);
}

/// `body` with a value of a type of 16 bits.
template <typename Body>
void with_narrow_type(Number number, const Body& body) {
  if (number == Number::kBFloat16) return body(BFloat16{});
  if (number == Number::kFloat16) return body(Float16{});
  throw std::runtime_error("low-rank products are of numbers of 16 bits");
}

}  // namespace slime::kernels::cuda::low_rank
