#pragma once

/// What the kernels beside products of matrices with adapters share (kernels/cuda/products/low_rank.h).

#include <stdexcept>

#include "kernels/cuda/products/low_rank.h"
#include "kernels/cuda/tensor_core.cuh"

namespace slime::kernels::cuda::low_rank {

inline constexpr int kThreads = 128, kWarps = 4;
inline constexpr int kRanks = 32;  // of a thread block on the way down, of a step on the way up
inline constexpr int kPad = 4;     // words behind a line of shared memory
inline constexpr int kRankPairs = kRanks / 2;

#if SLIME_DEVICE_CODE

/// Numbers (m, r) and (m + 1, r); 0 outside of the matrix.
__device__ inline float2 two_of_column(const LowRankFactor& factor, int m, int r) {
  const int size = factor.end - factor.begin;
  const auto at = [&](int of_m) {
    if (of_m >= size || r >= factor.rank) return 0.0F;
    return factor.is_turned ? factor.values[r * factor.pitch + of_m]
                            : factor.values[of_m * factor.pitch + r];
  };
  return make_float2(at(m), at(m + 1));
}

/// Numbers (m, r) and (m, r + 1).
__device__ inline float2 two_of_row(const LowRankFactor& factor, int m, int r) {
  const auto at = [&](int of_r) {
    if (m < 0 || m >= factor.end - factor.begin || of_r >= factor.rank) return 0.0F;
    return factor.is_turned ? factor.values[of_r * factor.pitch + m]
                            : factor.values[m * factor.pitch + of_r];
  };
  return make_float2(at(r), at(r + 1));
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
