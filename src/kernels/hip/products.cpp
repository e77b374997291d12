#include "kernels/hip/products.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace slime::kernels::hip {
namespace {

constexpr int64_t kFloatWeights = int64_t{1} << 26;  // 256 MiB

void plain_product(Tensor y_TO, const Tensor& x_TI, const Tensor& weight_OI, const Tensor& bias_O,
                   bool accumulates) {
  if (accumulates) {
    y_TO.addmm_(x_TI, weight_OI.t());
    if (bias_O.defined()) y_TO.add_(bias_O);
  } else if (bias_O.defined()) {
    at::addmm_out(y_TO, bias_O, x_TI, weight_OI.t());
  } else {
    at::mm_out(y_TO, x_TI, weight_OI.t());
  }
}

}  // namespace

void product_into(Tensor y_TO, const Tensor& x_TI, const Tensor& weight_OI, const Tensor& bias_O,
                  bool accumulates) {
  if (y_TO.scalar_type() == x_TI.scalar_type())
    return plain_product(y_TO, x_TI, weight_OI, bias_O, accumulates);
  const Tensor wide_TI = x_TI.to(at::kFloat);
  const int64_t outputs = weight_OI.size(0);
  const int64_t step = std::max<int64_t>(1, kFloatWeights / std::max<int64_t>(1, x_TI.size(1)));
  for (int64_t begin = 0; begin < outputs; begin += step) {
    const int64_t count = std::min(step, outputs - begin);
    Tensor sums = at::mm(wide_TI, weight_OI.narrow(0, begin, count).to(at::kFloat).t());
    if (bias_O.defined()) sums.add_(bias_O.narrow(0, begin, count));
    Tensor part = y_TO.narrow(1, begin, count);
    accumulates ? part.add_(sums) : part.copy_(sums);
  }
}

}  // namespace slime::kernels::hip
