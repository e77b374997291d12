#pragma once

/// Soft caps of attention's scores (kernels/soft_cap.h) on the device.

#include "kernels/cuda/vendor/vendor.cuh"

namespace slime::kernels::cuda {

/// tanh x within 3e-7, absolute; large numbers become 1 and -1. The processor's own instruction is wrong by
/// 5e-4, which after a cap of 50 is more than the rounding of bfloat16 leaves of a score.
__device__ inline float score_tanh(float x) {
  return 1.0F - fast_divide(2.0F, 1.0F + fast_exp(2.0F * x));
}

}  // namespace slime::kernels::cuda
