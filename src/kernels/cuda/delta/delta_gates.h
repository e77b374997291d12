#pragma once

/// The two operations of kernels/delta_kernels.h. Pointers are device memory; rows of a, b and z are
/// `row_stride` numbers apart. Asynchronous on `stream`.

#include <cstdint>

#include "kernels/cuda/launch.cuh"

namespace slime::kernels::cuda {

struct DeltaRateCall {
  Number number = Number::kBFloat16;  // of a and b
  const void* a_TN = nullptr;
  const void* b_TN = nullptr;
  int64_t row_stride = 0;
  Number of_weights = Number::kBFloat16;
  const void* a_log_N = nullptr;
  const void* bias_N = nullptr;
  float* decay_TN = nullptr;
  float* rate_TN = nullptr;
  int64_t rows = 0;
  int heads = 0;
};
void delta_rates(const DeltaRateCall& call, Stream stream);

struct GatedNormCall {
  Number number = Number::kBFloat16;  // of z and the result
  const float* x_TC = nullptr;
  const void* z_TC = nullptr;
  int64_t row_stride = 0;  // of z
  Number of_weight = Number::kBFloat16;
  const void* weight_V = nullptr;
  void* out_TC = nullptr;
  int64_t rows = 0;
  int heads = 0, value_dim = 0;  // up to kMostDeltaValues
  float eps = 0;
};
void gated_norm(const GatedNormCall& call, Stream stream);

}  // namespace slime::kernels::cuda
