#pragma once

/// AdamW and the gradient norm over flat buffers on the GPU; what they compute is said in
/// kernels/adamw.h. Plain pointers, asynchronous on `stream`.

#include <cstdint>

#include "kernels/cuda/launch.cuh"

namespace slime::kernels::cuda {

/// Constants of one update, made in double precision on the host.
struct AdamWCall {
  Number number = Number::kBFloat16;  // of the weights
  void* weights_N = nullptr;          // master_N itself when float32
  float* master_N = nullptr;
  float* first_moment_N = nullptr;
  float* second_moment_N = nullptr;
  const float* grad_N = nullptr;
  int64_t count = 0;
  float beta1 = 0, beta2 = 0, eps = 0;
  float grad_scale = 1;
  float decay = 1;                     // 1 - lr * weight_decay, or 1
  float step_size = 0;                 // lr / (1 - beta1^t)
  float inverse_sqrt_correction2 = 1;  // 1 / sqrt(1 - beta2^t)
};

void adamw(const AdamWCall& call, Stream stream);

/// Sums of squares of pieces of x, in double precision; their sum in order is the result.
inline constexpr int64_t kSquareSums = 1056;
void sums_of_squares(const float* x_N, int64_t count, double* sums, Stream stream);

}  // namespace slime::kernels::cuda
