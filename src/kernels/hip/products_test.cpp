#include "kernels/hip/products.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace slime::kernels::hip {
namespace {

struct Shapes {
  int64_t rows = 3, inputs = 40, outputs = 7;
};

/// x W^T + b in float64 of numbers as they are.
Tensor exact(const Tensor& x_TI, const Tensor& weight_OI, const Tensor& bias_O) {
  const Tensor y_TO = at::mm(x_TI.to(at::kDouble), weight_OI.to(at::kDouble).t());
  return bias_O.defined() ? y_TO + bias_O.to(at::kDouble) : y_TO;
}

double worst(const Tensor& a, const Tensor& b) {
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

TEST(HipProducts, AreThoseOfFloat64) {
  at::manual_seed(1);
  const Shapes s;
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const Tensor x = at::randn({s.rows, s.inputs}).to(type),
                 weight = at::randn({s.outputs, s.inputs}).to(type);
    for (const Tensor& bias : {Tensor(), at::randn({s.outputs}).to(type)}) {
      for (const bool is_float : {false, true}) {
        for (const bool accumulates : {false, true}) {
          Tensor y = at::randn({s.rows, s.outputs}).to(is_float ? at::kFloat : type);
          const Tensor want =
              exact(x, weight, bias) + (accumulates ? y.to(at::kDouble) : at::zeros({1}));
          product_into(y, x, weight, bias, accumulates);
          const bool is_wide = is_float || type == at::kFloat;
          EXPECT_LT(worst(y, want), is_wide ? 1e-4 : 0.2) << type << is_float << accumulates;
        }
      }
    }
  }
}

/// More weights than become float32 at a time: the parts lie where they belong.
TEST(HipProducts, MultiplyLargeMatricesInParts) {
  at::manual_seed(2);
  const Tensor x = at::randn({1, 1 << 15}).to(at::kBFloat16),
               weight = at::randn({2050, 1 << 15}).to(at::kBFloat16);
  Tensor y = at::empty({1, 2050}, at::kFloat);
  product_into(y, x, weight, at::Tensor(), false);
  for (const int64_t output : {int64_t{0}, int64_t{2047}, int64_t{2048}, int64_t{2049}})
    EXPECT_LT(worst(y.narrow(1, output, 1), exact(x, weight.narrow(0, output, 1), {})), 1e-2);
}

}  // namespace
}  // namespace slime::kernels::hip
