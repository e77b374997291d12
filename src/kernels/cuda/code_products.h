#pragma once

/// Products of matrices in e4m3 codes, of tensors (kernels/cuda/fp8/products.h has the kernels). Rows of activations become
/// codes on the way.

#include <cuda_runtime.h>

#include "core/tensor.h"
#include "kernels/cuda/fp8/products.h"
#include "kernels/matrix.h"
#include "kernels/routed_experts.h"

namespace slime::kernels::cuda {

/// In blocks of 128 x 128, without adapters.
bool is_codes(const Matrix& matrix);
/// Whether the kernels take it: [O, I], columns of whole copies, outputs of whole stores.
bool has_code_products(const Matrix& matrix);

/// Both matrices of the experts are codes that a kernel may read as they lie.
bool are_codes(const RoutedExperts& experts);

/// Rows of activations as codes.
struct CodeRows {
  CodeRows(int64_t rows, int64_t inputs, const at::TensorOptions& options);
  fp8::Rows of() const { return {codes_TI.data_ptr<uint8_t>(), factors_CP.data_ptr<float>()}; }

  Tensor codes_TI, factors_CP;
};
CodeRows codes_of(const Tensor& x_TI, cudaStream_t stream);

/// Into y, bfloat16 or float32; its x is still to be named.
fp8::Product code_product_of(const Matrix& weight_OI, const Tensor& bias_O, int64_t rows,
                             const Tensor& y);
void multiply_codes(fp8::Product product, const CodeRows& x, cudaStream_t stream);

/// x W^T + b, into bfloat16 or float32.
void code_linear_into(const Tensor& y_TO, const Tensor& x_TI, const Matrix& weight_OI,
                      const Tensor& bias_O, cudaStream_t stream);
Tensor code_linear(const Tensor& x_TI, const Matrix& weight_OI, const Tensor& bias_O,
                   bool float_result, cudaStream_t stream);
/// x W^T as partial sums, float32 [S, T, O].
Tensor code_parts(const Tensor& x_TI, const Matrix& weight_OI, cudaStream_t stream);
/// silu(gate) * up of x, as codes; gate_up's outputs are a multiple of 16.
CodeRows gated_code_rows(const CodeRows& x, const Matrix& gate_up_2FI, const Tensor& bias_2F,
                         int64_t rows, const at::TensorOptions& options, cudaStream_t stream);
/// W_down (silu(gate) * up) of x, into bfloat16 or float32.
void gated_code_mlp_into(const Tensor& y_TO, const Tensor& x_TI, const Matrix& gate_up_2FI,
                         const Matrix& down_OF, cudaStream_t stream);

/// Whether products of rows that have a matrix each, [E, O, I], have a kernel.
bool has_grouped_code_linear(const Tensor& x_SI, const Matrix& codes_EOI);
/// Rows lie in the order of the experts; bfloat16.
Tensor grouped_code_linear(const Tensor& x_SI, const Matrix& codes_EOI, const int32_t* starts_E1);

/// The numbers of experts' codes [E, O, I], in this precision.
Tensor numbers_of_experts(const Matrix& codes_EOI, at::ScalarType precision);

}  // namespace slime::kernels::cuda
