/// Products of FastDevice: float32 activations through gemm.h, bfloat16 ones through tiles.

#include <ATen/ATen.h>

#include <vector>

#include "kernels/cpu/fast_device.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/gemm_tiles.h"
#include "kernels/cpu/processor.h"
#include "kernels/matrix_formats.h"

namespace slime::kernels::cpu {
namespace {

/// The own products: float32 activations with a weight the packing understands.
bool multiplies(const Tensor& x, const Tensor& weight) {
  const auto type = weight.scalar_type();
  return x.scalar_type() == at::kFloat &&
         (type == at::kFloat || type == at::kBFloat16 || type == at::kHalf);
}

/// The own products of bfloat16.
bool multiplies_tiles(const Tensor& x, const Tensor& weight) {
  return x.scalar_type() == at::kBFloat16 && weight.scalar_type() == at::kBFloat16 && has_tiles();
}

/// The numbers of a weight: plain ones as they are stored, of another format in the precision of x.
Tensor weight_of(const Matrix& matrix, const Tensor& x) {
  return matrix.is_plain() ? matrix.values : numbers_of(matrix, x.scalar_type());
}

at::BFloat16* bfloat16s(const Tensor& x) { return static_cast<at::BFloat16*>(x.data_ptr()); }

/// A contiguous matrix whose rows, or with `k_strided` columns, are what a product runs over.
TileFactor factor(const Tensor& x, bool k_strided) { return {bfloat16s(x), x.size(1), k_strided}; }

/// x W^T as bfloat16 or float32.
Tensor tile_product(const Tensor& x_TI, const Tensor& weight_OI, at::ScalarType precision) {
  const Tensor x = x_TI.contiguous();
  const int64_t rows = x.size(0), outputs = weight_OI.size(0);
  Tensor y_TO = at::empty({rows, outputs}, x.options().dtype(precision));
  gemm_tiles(tile_ops(), {rows, outputs, x.size(1)}, factor(x, false), factor(weight_OI, false),
             {.data = y_TO.data_ptr(),
              .stride = outputs,
              .store = precision == at::kFloat ? TileStore::kFloat : TileStore::kBfloat16});
  return y_TO;
}

}  // namespace

Tensor FastDevice::linear(const Tensor& x_TI, const Matrix& matrix_OI, const Tensor& bias_O) const {
  const Tensor weight_OI = weight_of(matrix_OI, x_TI);
  if (multiplies_tiles(x_TI, weight_OI)) {
    Tensor y_TO = tile_product(x_TI, weight_OI, at::kBFloat16);
    return bias_O.defined() ? y_TO.add_(bias_O) : y_TO;
  }
  if (!multiplies(x_TI, weight_OI)) return ReferenceDevice::linear(x_TI, weight_OI, bias_O);
  const Tensor x = x_TI.contiguous();
  const int64_t rows = x.size(0), inputs = x.size(1), outputs = weight_OI.size(0);
  Tensor y_TO = at::empty({rows, outputs}, x.options());
  gemm({rows, outputs, inputs}, {x.data_ptr<float>(), inputs, 1},
       {weight_OI.data_ptr(), weight_OI.scalar_type(), 1, inputs}, y_TO.data_ptr<float>(), outputs,
       false);
  if (bias_O.defined()) y_TO.add_(bias_O);
  return y_TO;
}

Tensor FastDevice::logits(const Tensor& x_TI, const Matrix& matrix_OI) const {
  const Tensor weight_OI = weight_of(matrix_OI, x_TI);
  if (multiplies_tiles(x_TI, weight_OI)) return tile_product(x_TI, weight_OI, at::kFloat);
  if (multiplies(x_TI, weight_OI)) return linear(x_TI, weight_OI, {});
  return ReferenceDevice::logits(x_TI, weight_OI);
}

Tensor FastDevice::linear_input_grad(const Tensor& dy_TO, const Matrix& matrix_OI) const {
  const Tensor weight_OI = weight_of(matrix_OI, dy_TO);
  const bool in_tiles = multiplies_tiles(dy_TO, weight_OI);
  if (!in_tiles && !multiplies(dy_TO, weight_OI))
    return ReferenceDevice::linear_input_grad(dy_TO, weight_OI);
  const int64_t rows = dy_TO.size(0), outputs = dy_TO.size(1), inputs = weight_OI.size(1);
  Tensor dx_TI = at::empty({rows, inputs}, dy_TO.options());
  if (in_tiles) {
    gemm_tiles(tile_ops(), {rows, inputs, outputs}, factor(dy_TO, false), factor(weight_OI, true),
               {.data = dx_TI.data_ptr(), .stride = inputs, .store = TileStore::kBfloat16});
    return dx_TI;
  }
  gemm({rows, inputs, outputs}, {dy_TO.data_ptr<float>(), outputs, 1},
       {weight_OI.data_ptr(), weight_OI.scalar_type(), inputs, 1}, dx_TI.data_ptr<float>(), inputs,
       false);
  return dx_TI;
}

void FastDevice::add_linear_weight_grad_(Tensor grad_OI, const Tensor& dy_TO,
                                         const Tensor& x_TI) const {
  const bool in_tiles = multiplies_tiles(dy_TO, x_TI);
  if (!in_tiles && (dy_TO.scalar_type() != at::kFloat || x_TI.scalar_type() != at::kFloat))
    return ReferenceDevice::add_linear_weight_grad_(grad_OI, dy_TO, x_TI);
  const Tensor x = x_TI.contiguous();
  const int64_t rows = x.size(0), outputs = dy_TO.size(1), inputs = x.size(1);
  if (in_tiles) {
    return gemm_tiles(
        tile_ops(), {outputs, inputs, rows}, factor(dy_TO, true), factor(x, true),
        {.data = grad_OI.data_ptr(), .stride = inputs, .store = TileStore::kAddToFloat});
  }
  gemm({outputs, inputs, rows}, {dy_TO.data_ptr<float>(), 1, outputs},
       {x.data_ptr(), at::kFloat, inputs, 1}, grad_OI.data_ptr<float>(), inputs, true);
}

Tensor FastDevice::grouped_linear(const Tensor& x_SI, const Matrix& matrix_EOI,
                                  const GroupStarts& starts) const {
  // Of another format, the experts that are visited alone are made.
  if (!matrix_EOI.is_plain()) return ReferenceDevice::grouped_linear(x_SI, matrix_EOI, starts);
  const Tensor& weight_EOI = matrix_EOI.values;
  if (!multiplies_tiles(x_SI, weight_EOI) || weight_EOI.stride(2) != 1 || starts.is_on_device())
    return ReferenceDevice::grouped_linear(x_SI, weight_EOI, starts);
  const Tensor x = x_SI.contiguous();
  const int64_t outputs = weight_EOI.size(1), inputs = weight_EOI.size(2);
  Tensor y_SO = at::empty({x.size(0), outputs}, x.options());
  std::vector<TileProduct> products;
  for (size_t e = 0; e + 1 < starts.host.size(); ++e) {
    const int64_t begin = starts.host[e], rows = starts.host[e + 1] - begin;
    products.push_back({{rows, outputs, inputs},
                        {bfloat16s(x) + begin * inputs, inputs, false},
                        {bfloat16s(weight_EOI) + static_cast<int64_t>(e) * weight_EOI.stride(0),
                         weight_EOI.stride(1), false},
                        {.data = bfloat16s(y_SO) + begin * outputs,
                         .stride = outputs,
                         .store = TileStore::kBfloat16}});
  }
  gemm_tiles(tile_ops(), products);
  return y_SO;
}

}  // namespace slime::kernels::cpu
