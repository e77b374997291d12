// Products of rows that have a matrix each, their expert's, in training and in prompts.

#include <ATen/ATen.h>

#include "core/error.h"
#include "kernels/cuda/code_products.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/experts/grouped_product.h"
#include "kernels/cuda/experts/visits.h"

namespace slime::kernels::cuda {
namespace {

/// Codes that no product has become numbers for the call: those of a layer's experts at once.
Matrix as_numbers(const Matrix& weight_EOI, const Tensor& x) {
  return weight_EOI.format == MatrixFormat::kPlain
             ? weight_EOI
             : Matrix(numbers_of_experts(weight_EOI, x.scalar_type()));
}

bool has_fast_product(const Tensor& x, const Matrix& weight_EOI) {
  return is_plain(x) && is_plain(weight_EOI) &&
         has_grouped_product(weight_EOI.values.size(0), weight_EOI.outputs(), weight_EOI.inputs());
}

const int32_t* starts_of(const GroupStarts& starts) {
  check(starts.is_on_device(), "grouped products of a GPU have their starts there");
  return starts.device_E1.const_data_ptr<int32_t>();
}

/// is_turned: y = x W instead of x W^T. is_gated: with SwiGLU.
Tensor fast_product(const Tensor& x_S, const Matrix& matrix_EOI, const GroupStarts& starts,
                    bool is_turned, bool is_gated = false) {
  const Tensor& weight_EOI = matrix_EOI.plain();
  GroupedProduct call;
  call.is_turned = is_turned;
  call.is_gated = is_gated;
  call.x_S = pointer(x_S);
  call.weight_EOI = pointer(weight_EOI);
  call.starts_E1 = starts_of(starts);
  call.rows = x_S.size(0);
  call.experts = static_cast<int>(weight_EOI.size(0));
  call.outputs = static_cast<int>(weight_EOI.size(1));
  call.inputs = static_cast<int>(weight_EOI.size(2));
  const int64_t width = weight_EOI.size(is_turned ? 2 : 1);
  Tensor y_S = at::empty({call.rows, is_gated ? width / 2 : width}, x_S.options());
  call.y_S = y_S.data_ptr();
  grouped_product(call, stream_of(x_S));
  return y_S;
}

/// is_turned: y = x W instead of x W^T.
Tensor plain_product(const Tensor& x_SI, const Matrix& matrix_EOI, const GroupStarts& starts,
                     bool is_turned) {
  const Tensor& weight_EOI = matrix_EOI.plain();
  const Tensor x = x_SI.contiguous();
  const int output_dim = is_turned ? 2 : 1, input_dim = is_turned ? 1 : 2;
  Tensor y_SO = at::empty({x.size(0), weight_EOI.size(output_dim)}, x.options());
  PlainGroupedProduct call;
  call.number = number_of(x);
  call.x_SI = pointer(x);
  call.weight = pointer(weight_EOI);
  call.expert_stride = weight_EOI.stride(0);
  call.output_stride = weight_EOI.stride(output_dim);
  call.input_stride = weight_EOI.stride(input_dim);
  call.starts_E1 = starts_of(starts);
  call.rows = x.size(0);
  call.experts = static_cast<int>(weight_EOI.size(0));
  call.inputs = static_cast<int>(weight_EOI.size(input_dim));
  call.outputs = static_cast<int>(weight_EOI.size(output_dim));
  call.y_SO = y_SO.data_ptr();
  plain_grouped_product(call, stream_of(x));
  return y_SO;
}

}  // namespace

Tensor CudaDevice::grouped_linear(const Tensor& x_SI, const Matrix& matrix_EOI,
                                  const GroupStarts& starts) const {
  if (has_grouped_code_linear(x_SI, matrix_EOI))
    return grouped_code_linear(x_SI, matrix_EOI, starts_of(starts));
  const Matrix weight_EOI = as_numbers(matrix_EOI, x_SI);
  return has_fast_product(x_SI, weight_EOI) ? fast_product(x_SI, weight_EOI, starts, false)
                                            : plain_product(x_SI, weight_EOI, starts, false);
}

Tensor CudaDevice::grouped_gated_linear(const Tensor& x_SI, const Matrix& matrix_EOI,
                                        const GroupStarts& starts) const {
  if (has_grouped_code_linear(x_SI, matrix_EOI))
    return swiglu(grouped_code_linear(x_SI, matrix_EOI, starts_of(starts)));
  const Matrix weight_EOI = as_numbers(matrix_EOI, x_SI);
  // Training has the product and the activation, between which it rounds.
  return arithmetic() != Arithmetic::kTraining && has_fast_product(x_SI, weight_EOI) &&
                 weight_EOI.outputs() % 16 == 0
             ? fast_product(x_SI, weight_EOI, starts, false, true)
             : ReferenceDevice::grouped_gated_linear(x_SI, weight_EOI, starts);
}

Tensor CudaDevice::grouped_input_grad(const Tensor& dy_SO, const Matrix& matrix_EOI,
                                      const GroupStarts& starts) const {
  const Matrix weight_EOI = as_numbers(matrix_EOI, dy_SO);
  return has_fast_product(dy_SO, weight_EOI) ? fast_product(dy_SO, weight_EOI, starts, true)
                                             : plain_product(dy_SO, weight_EOI, starts, true);
}

void CudaDevice::add_grouped_weight_grad_(Tensor grad_EOI, const Tensor& dy_SO, const Tensor& x_SI,
                                          const GroupStarts& starts) const {
  const Tensor dy = dy_SO.contiguous(), x = x_SI.contiguous();
  check(grad_EOI.is_contiguous() && grad_EOI.scalar_type() == at::kFloat,
        "grouped products of a GPU add to float32 gradients");
  if (is_plain(dy) && is_plain(x) && is_aligned(grad_EOI) &&
      has_grouped_product(grad_EOI.size(0), grad_EOI.size(1), grad_EOI.size(2))) {
    GroupedGradient call;
    call.dy_SO = pointer(dy);
    call.x_SI = pointer(x);
    call.starts_E1 = starts_of(starts);
    call.rows = x.size(0);
    call.experts = static_cast<int>(grad_EOI.size(0));
    call.outputs = static_cast<int>(grad_EOI.size(1));
    call.inputs = static_cast<int>(grad_EOI.size(2));
    call.grad_EOI = grad_EOI.data_ptr<float>();
    grouped_gradient(call, stream_of(dy));
    return;
  }
  PlainGroupedGradient call;
  call.number = number_of(dy);
  call.dy_SO = pointer(dy);
  call.x_SI = pointer(x);
  call.starts_E1 = starts_of(starts);
  call.experts = static_cast<int>(grad_EOI.size(0));
  call.inputs = static_cast<int>(x.size(1));
  call.outputs = static_cast<int>(dy.size(1));
  call.grad_EOI = grad_EOI.data_ptr<float>();
  plain_grouped_gradient(call, stream_of(dy));
}

}  // namespace slime::kernels::cuda
