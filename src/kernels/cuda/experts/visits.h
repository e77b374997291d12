#pragma once

/// Sums over the visits of a row, and products of rows that have a matrix each in any precision:
/// what is left of experts beside their fast products.
///
/// Dimensions: T rows, K visits of each, S = T K, H hidden, E matrices, I inputs, O outputs.

#include <cstdint>

#include "kernels/cuda/launch.cuh"

namespace slime::kernels::cuda {

/// Pointers are device memory, 16-byte aligned, bfloat16 and contiguous unless a comment says
/// otherwise. H is a multiple of eight.
struct VisitSum {
  const void* rows_SH = nullptr;
  const int64_t* place_TK =
      nullptr;  // int64, of a visit in rows; null: visit k of row t is at t K + k
  const float* weight_TK = nullptr;  // float32; null: all ones
  const void* more_TH = nullptr;     // added to the sums; null: none
  int64_t rows = 0;
  int per_token = 0, hidden = 0;
  /// Null: the sums go to out_TH. Otherwise residual becomes this plus the sums, added in float32 and
  /// rounded once, and out_TH its norm.
  const void* base_TH = nullptr;
  void* residual_TH = nullptr;
  const void* norm_H = nullptr;
  float eps = 0;
  void* out_TH = nullptr;
};

/// In the order of k, in float32. Asynchronous on `stream`; throws std::runtime_error.
void sum_visits(const VisitSum& call, Stream stream);

/// The backward of silu(gate) * up of visits (kernels/routed_experts.h). F is a multiple of eight.
struct GatedBackward {
  const void* dgated_SF = nullptr;
  const void* gate_up_S2F = nullptr;
  const float* weight_S = nullptr;  // float32
  void* dgate_up_S2F = nullptr;
  void* weighted_SF = nullptr;
  float* dweight_S = nullptr;  // float32
  int64_t rows = 0;
  int width = 0;
};
void gated_backward(const GatedBackward& call, Stream stream);

/// y_SO[s, o] = sum over i of x_SI[s, i] * w[e, o, i] for the matrix e of row s, in float32.
/// Starts: int32 [E + 1] on the device. Strides in numbers.
struct PlainGroupedProduct {
  Number number = Number::kFloat32;
  const void* x_SI = nullptr;
  const void* weight = nullptr;
  int64_t expert_stride = 0, output_stride = 0, input_stride = 0;
  const int32_t* starts_E1 = nullptr;
  int64_t rows = 0;
  int experts = 0, inputs = 0, outputs = 0;
  void* y_SO = nullptr;
};
/// For shapes and precisions that no fast product has; slow.
void plain_grouped_product(const PlainGroupedProduct& call, Stream stream);

/// grad_EOI[e] += sum over the rows s of e of dy[s, o] * x[s, i], in float32.
struct PlainGroupedGradient {
  Number number = Number::kFloat32;  // of dy and x
  const void* dy_SO = nullptr;
  const void* x_SI = nullptr;
  const int32_t* starts_E1 = nullptr;
  int experts = 0, inputs = 0, outputs = 0;
  float* grad_EOI = nullptr;
};
void plain_grouped_gradient(const PlainGroupedGradient& call, Stream stream);

}  // namespace slime::kernels::cuda
