#pragma once

/// Fused router of a decode step: residual addition, norm, the product with the router's matrix,
/// scores and expert choice in one kernel. Without the norm it is the router of training arithmetic
/// too: what a row computes does not depend on the other rows. Compute capability 9.0.
///
/// Dimensions: T rows, H hidden, E experts, K visits of each row, S splits.

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/launch.cuh"

namespace slime::kernels::cuda {

/// Pointers are device memory, 16-byte aligned, bfloat16 and contiguous unless a comment says
/// otherwise.
struct RouteCall {
  /// Rows to route; with a norm the residual stream.
  const void* x_TH = nullptr;
  const float* partials_STH = nullptr;  // float32, added to x in one order; null: none
  int splits = 0;
  const void* update_TH = nullptr;  // added to x; null: none
  const void* bias_H = nullptr;     // added to x; null: none
  const void* norm_H = nullptr;     // null: x is routed as it is, and nothing is added
  void* sum_TH = nullptr;           // with a norm: x plus what is added; must not alias x
  void* normed_TH = nullptr;        // and its norm
  float eps = 0;

  const void* router_EH = nullptr;
  const float* selection_bias_E = nullptr;  // float32; null: none
  bool is_sigmoid = false, normalizes = false;
  float scaling = 1;
  int32_t* expert_TK = nullptr;  // by descending score, equal ones by their number
  float* weight_TK = nullptr;    // float32
  int16_t* chosen_TK = nullptr;  // the same choices for whoever records them; null: nobody
  int64_t chosen_stride = 0;     // from row to row
  int rows = 0, hidden = 0, experts = 0, per_token = 0;
  /// One kernel for any number of rows (training arithmetic); otherwise the fastest for them.
  bool has_one_form = false;
};

/// Whether sizes are within reach.
bool has_norm_route(int64_t hidden, int64_t experts, int64_t per_token);

/// Asynchronous on `stream`. Throws std::runtime_error for a failed launch.
void norm_route(const RouteCall& call, cudaStream_t stream);

}  // namespace slime::kernels::cuda
