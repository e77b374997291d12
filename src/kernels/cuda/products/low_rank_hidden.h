#pragma once

/// The way down of adapters in a decode step: h = scale * x A^T, complete, in one kernel.
///
/// Bound by latency: A is in flight before x is complete, and the product behind it fills its pipeline with weights
/// meanwhile. What comes down goes up as the product's LowRankAddition.

#include <cstdint>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/products/low_rank.h"

namespace slime::kernels::cuda {

/// The order of a sum, whichever kernel makes h: chain c of a range of the inputs has every kHiddenChains-th step of
/// kHiddenStep inputs from its c-th step on; a range adds its chains up, and a number of h its kHiddenShares ranges.
inline constexpr int kHiddenShares = 8, kHiddenChains = 8, kHiddenStep = 16;

/// `inputs` must be a multiple of it, and pairs 16-byte aligned.
inline constexpr int kLowRankHiddenInputs = 64;

struct LowRankHidden {
  const void* x_TI = nullptr;  // bfloat16
  int rows = 0, inputs = 0;
  LowRankFactors factors;  // A of each pair, of all inputs
  LowRankRows by_row;
  int h_pitch = 0;
  float* h_TR = nullptr;
  unsigned* ready = nullptr;  // LowRankAddition::ready; not of rows that take adapters of their own
};

/// True for bfloat16 and compute capability 9.0.
bool has_low_rank_hidden(Number number);
/// Asynchronous on `stream`.
void low_rank_hidden(const LowRankHidden& call, Stream stream);

}  // namespace slime::kernels::cuda
