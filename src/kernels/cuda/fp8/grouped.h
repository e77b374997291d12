#pragma once

/// Products of many rows of codes that have a matrix each, their expert's (compute capability 9.0). Rows lie in the order of
/// the experts.
///
///   y(s, o) = sum over blocks c of 128 inputs: x_factor(c, s) w_factor(e, row(o), c) dot_c(s, o)    e: expert of row s

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/fp8/quantise.h"

namespace slime::kernels::cuda::fp8 {

/// Device memory, contiguous, 16-byte aligned.
struct GroupedCodes {
  Rows x;
  ExpertNumbers weight;  // its inputs are a multiple of 16, its outputs of 8
  const int32_t* starts_E1 = nullptr;
  int64_t rows = 0;
  void* y_SO = nullptr;  // bfloat16
};

bool has_grouped_codes(int64_t experts, int64_t outputs, int64_t inputs);

void grouped_codes(const GroupedCodes& call, cudaStream_t stream);

}  // namespace slime::kernels::cuda::fp8
