#pragma once

/// Products of many rows that have a matrix each, their expert's: forward, input gradient and weight
/// gradient of training and of prompts. Bound by the tensor cores, the weight gradient by the memory
/// that float32 gradients are added to (compute capability 9.0).
///
/// Rows lie in the order of the experts. Dimensions: S rows, E experts, I inputs, O outputs.

#include <cuda_runtime.h>

#include <cstdint>

namespace slime::kernels::cuda {

/// y[s, o] = sum over i of x[s, i] * w[e, o, i] for the expert e of row s; is_turned: y[s, i] = sum
/// over o of x[s, o] * w[e, o, i]; is_gated: silu of the first half of the outputs times the second half,
/// [S, O / 2], O a multiple of 16. Device memory, bfloat16, contiguous, 16-byte aligned; starts int32
/// [E + 1].
struct GroupedProduct {
  bool is_turned = false, is_gated = false;
  const void* x_S = nullptr;
  const void* weight_EOI = nullptr;
  const int32_t* starts_E1 = nullptr;
  int64_t rows = 0;
  int experts = 0, outputs = 0, inputs = 0;
  void* y_S = nullptr;
};

/// grad[e, o, i] += sum over the rows s of e of dy[s, o] * x[s, i], in float32, one addition for each
/// number.
struct GroupedGradient {
  const void* dy_SO = nullptr;
  const void* x_SI = nullptr;
  const int32_t* starts_E1 = nullptr;
  int64_t rows = 0;
  int experts = 0, outputs = 0, inputs = 0;
  float* grad_EOI = nullptr;  // contiguous, 16-byte aligned
};

/// O and I are multiples of eight.
bool has_grouped_product(int64_t experts, int64_t outputs, int64_t inputs);

/// Asynchronous on `stream`; throw std::runtime_error for a failed launch and other sizes.
void grouped_product(const GroupedProduct& call, cudaStream_t stream);
void grouped_gradient(const GroupedGradient& call, cudaStream_t stream);

}  // namespace slime::kernels::cuda
