#include "kernels/cuda/code_products.h"

#include <ATen/ATen.h>

#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/fp8/grouped.h"
#include "kernels/matrix_formats.h"

namespace slime::kernels::cuda {
namespace {

bool is_few(int64_t rows) { return rows <= fp8::kMostFewRows; }

/// Of one or two rows, whose codes the product makes itself.
void multiply_narrow(const fp8::Product& product, const Tensor& x_TI, cudaStream_t stream) {
  fp8::narrow_product(product, pointer(x_TI), {}, stream);
}

/// Codes that kernels read as they lie.
bool are_whole(const Matrix& codes) {
  return is_codes(codes) && codes.values.is_contiguous() && is_aligned(codes.values) &&
         codes.scales.is_contiguous() && codes.scale_row_O.is_contiguous();
}

fp8::ExpertNumbers numbers_call(const Matrix& codes_EOI) {
  return {.codes_EOI = static_cast<const uint8_t*>(codes_EOI.values.const_data_ptr()),
          .factors_EBC = codes_EOI.scales.const_data_ptr<float>(),
          .factor_row_O = codes_EOI.scale_row_O.const_data_ptr<int64_t>(),
          .experts = codes_EOI.values.size(0),
          .outputs = codes_EOI.outputs(),
          .inputs = codes_EOI.inputs(),
          .factor_rows = codes_EOI.scales.size(1)};
}

}  // namespace

bool is_codes(const Matrix& matrix) {
  return matrix.format == MatrixFormat::kFp8Blocks && matrix.adapters == nullptr;
}

bool has_code_products(const Matrix& matrix) {
  return are_whole(matrix) && matrix.inputs() % 16 == 0 && matrix.outputs() % 8 == 0 &&
         matrix.values.dim() == 2;
}

bool are_codes(const RoutedExperts& experts) {
  return are_whole(experts.gate_up) && are_whole(experts.down);
}

CodeRows::CodeRows(int64_t rows, int64_t inputs, const at::TensorOptions& options)
    : codes_TI(at::empty({rows, inputs}, options.dtype(at::kByte))),
      factors_CP(at::empty({fp8::factor_rows(inputs), fp8::factor_pitch(rows)},
                           options.dtype(at::kFloat))) {}

CodeRows codes_of(const Tensor& x_TI, cudaStream_t stream) {
  const int64_t rows = x_TI.size(0), inputs = x_TI.size(1);
  CodeRows codes(rows, inputs, x_TI.options());
  fp8::quantise_rows(number_of(x_TI), pointer(x_TI), codes.of(), rows, inputs, stream);
  return codes;
}

fp8::Product code_product_of(const Matrix& weight_OI, const Tensor& bias_O, int64_t rows,
                             const Tensor& y) {
  fp8::Product product;
  product.weight = {static_cast<const uint8_t*>(weight_OI.values.const_data_ptr()),
                    weight_OI.scales.const_data_ptr<float>(),
                    weight_OI.scale_row_O.const_data_ptr<int64_t>()};
  product.bias_O = pointer(bias_O);
  product.rows = static_cast<int>(rows);
  product.inputs = static_cast<int>(weight_OI.inputs());
  product.outputs = static_cast<int>(weight_OI.outputs());
  product.float_result = y.scalar_type() == at::kFloat;
  product.y = y.data_ptr();
  return product;
}

void multiply_codes(fp8::Product product, const CodeRows& x, cudaStream_t stream) {
  product.x = x.of();
  is_few(product.rows) ? fp8::few_product(product, stream) : fp8::many_product(product, stream);
}

void code_linear_into(const Tensor& y_TO, const Tensor& x_TI, const Matrix& weight_OI,
                      const Tensor& bias_O, cudaStream_t stream) {
  const int64_t rows = x_TI.size(0);
  const fp8::Product product = code_product_of(weight_OI, bias_O, rows, y_TO);
  if (fp8::has_narrow_product(rows, weight_OI.inputs())) {
    multiply_narrow(product, x_TI, stream);
  } else {
    multiply_codes(product, codes_of(x_TI, stream), stream);
  }
}

Tensor code_linear(const Tensor& x_TI, const Matrix& weight_OI, const Tensor& bias_O,
                   bool float_result, cudaStream_t stream) {
  Tensor y_TO = at::empty({x_TI.size(0), weight_OI.outputs()},
                          float_result ? x_TI.options().dtype(at::kFloat) : x_TI.options());
  code_linear_into(y_TO, x_TI, weight_OI, bias_O, stream);
  return y_TO;
}

Tensor code_parts(const Tensor& x_TI, const Matrix& weight_OI, cudaStream_t stream) {
  const int64_t rows = x_TI.size(0);
  const auto inputs = static_cast<int>(weight_OI.inputs()),
             outputs = static_cast<int>(weight_OI.outputs());
  const int splits = is_few(rows)
                         ? fp8::few_product_splits(inputs, outputs)
                         : fp8::many_product_splits(static_cast<int>(rows), inputs, outputs);
  Tensor parts_STO = at::empty({splits, rows, outputs}, x_TI.options().dtype(at::kFloat));
  fp8::Product product = code_product_of(weight_OI, {}, rows, parts_STO);
  product.epilogue = fp8::Product::Epilogue::kSplitK;
  if (fp8::has_narrow_product(rows, inputs)) {
    multiply_narrow(product, x_TI, stream);
  } else {
    multiply_codes(product, codes_of(x_TI, stream), stream);
  }
  return parts_STO;
}

CodeRows gated_code_rows(const CodeRows& x, const Matrix& gate_up_2FI, const Tensor& bias_2F,
                         int64_t rows, const at::TensorOptions& options, cudaStream_t stream) {
  const int64_t width = gate_up_2FI.outputs() / 2;
  Tensor y = at::empty({rows, is_few(rows) ? width : 2 * width}, options);
  fp8::Product product = code_product_of(gate_up_2FI, bias_2F, rows, y);
  if (is_few(rows)) product.epilogue = fp8::Product::Epilogue::kSwiglu;
  multiply_codes(product, x, stream);
  if (is_few(rows)) return codes_of(y, stream);
  CodeRows gated(rows, width, options);
  fp8::swiglu_rows(pointer(y), gated.of(), rows, width, stream);
  return gated;
}

void gated_code_mlp_into(const Tensor& y_TO, const Tensor& x_TI, const Matrix& gate_up_2FI,
                         const Matrix& down_OF, cudaStream_t stream) {
  const int64_t rows = x_TI.size(0);
  if (fp8::has_narrow_product(rows, x_TI.size(1)) &&
      fp8::has_narrow_product(rows, down_OF.inputs())) {
    const Tensor gated_TF = at::empty({rows, down_OF.inputs()}, x_TI.options());
    fp8::Product product = code_product_of(gate_up_2FI, {}, rows, gated_TF);
    product.epilogue = fp8::Product::Epilogue::kSwiglu;
    multiply_narrow(product, x_TI, stream);
    return code_linear_into(y_TO, gated_TF, down_OF, {}, stream);
  }
  const CodeRows gated =
      gated_code_rows(codes_of(x_TI, stream), gate_up_2FI, {}, rows, x_TI.options(), stream);
  multiply_codes(code_product_of(down_OF, {}, rows, y_TO), gated, stream);
}

bool has_grouped_code_linear(const Tensor& x_SI, const Matrix& codes_EOI) {
  return is_plain(x_SI) && x_SI.size(0) > 0 && are_whole(codes_EOI) &&
         fp8::has_grouped_codes(codes_EOI.values.size(0), codes_EOI.outputs(), codes_EOI.inputs());
}

Tensor grouped_code_linear(const Tensor& x_SI, const Matrix& codes_EOI, const int32_t* starts_E1) {
  const cudaStream_t stream = stream_of(x_SI);
  const CodeRows x = codes_of(x_SI, stream);
  Tensor y_SO = at::empty({x_SI.size(0), codes_EOI.outputs()}, x_SI.options());
  fp8::grouped_codes({.x = x.of(),
                      .weight = numbers_call(codes_EOI),
                      .starts_E1 = starts_E1,
                      .rows = x_SI.size(0),
                      .y_SO = y_SO.data_ptr()},
                     stream);
  return y_SO;
}

Tensor numbers_of_experts(const Matrix& codes_EOI, at::ScalarType precision) {
  if (!are_whole(codes_EOI) || codes_EOI.inputs() % 8 != 0 || precision == at::kDouble)
    return numbers_of(codes_EOI, precision);
  Tensor numbers_EOI =
      at::empty(codes_EOI.values.sizes(), codes_EOI.values.options().dtype(precision));
  fp8::write_numbers(number_of(numbers_EOI), numbers_call(codes_EOI), numbers_EOI.data_ptr(),
                     stream_of(numbers_EOI));
  return numbers_EOI;
}

}  // namespace slime::kernels::cuda
