#pragma once

/// The share of an attention sink in a head's softmax, for kernels whose scores have base 2.

#include "kernels/cuda/attention/attention.h"

namespace slime::kernels::cuda {

/// Beside weights 2^(score - largest).
template <typename T>
__device__ float sink_weight(const AttendCall& call, int head, float largest) {
  constexpr float kLog2E = 1.4426950408889634F;
  const float sink = to_float(static_cast<const T*>(call.sinks_N)[head]);
  return exp2f(sink * kLog2E - largest);
}

}  // namespace slime::kernels::cuda
