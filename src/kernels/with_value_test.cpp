#include "kernels/with_value.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace slime::kernels {
namespace {

TEST(WithValue, HasTheNumbersOfOneAndTheGradientOfTheOther) {
  const Tensor x = at::full({3}, 2.0F).requires_grad_();
  const Tensor out = with_value(x * x, at::tensor({4.5F, 4.25F, 4.125F}));
  EXPECT_TRUE(out.detach().equal(at::tensor({4.5F, 4.25F, 4.125F})));
  (out * at::tensor({1.0F, 2.0F, 3.0F})).sum().backward();
  EXPECT_TRUE(x.grad().equal(at::tensor({4.0F, 8.0F, 12.0F})));
}

}  // namespace
}  // namespace slime::kernels
