#include "kernels/clamped_swiglu.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

namespace slime::kernels {
namespace {

/// A rank of several whose experts nobody visits has no rows.
TEST(ClampedSwiglu, OfNoRowsIsNone) {
  const Tensor none = at::empty({0, 12}, at::kFloat);
  EXPECT_EQ(clamped_swiglu(none, 1.5).sizes(), at::IntArrayRef({0, 6}));
  EXPECT_EQ(clamped_swiglu_backward(at::empty({0, 6}, at::kFloat), none, 1.5).sizes(),
            at::IntArrayRef({0, 12}));
}

TEST(ClampedSwiglu, BoundsGatesFromAboveAndUpsOnBothSides) {
  const Tensor gate_up = at::tensor({0.0, 5.0, 9.0, 1.0, -9.0, -8.0}, at::kDouble).view({1, 6});
  const Tensor out = clamped_swiglu(gate_up, 2.0)[0];
  const auto gated = [](double gate, double up) {
    return (up + 1) * gate / (1 + std::exp(-1.702 * gate));
  };
  EXPECT_EQ(out[0].item<double>(), 0);
  EXPECT_NEAR(out[1].item<double>(), gated(2, 1), 1e-14);
  EXPECT_NEAR(out[2].item<double>(), gated(-9, -2), 1e-14);
  const Tensor slope = clamped_swiglu_backward(at::ones({1, 3}, at::kDouble), gate_up, 2.0)[0];
  EXPECT_EQ(slope[1].item<double>(), 0) << "an up beyond its bound";
  EXPECT_EQ(slope[2].item<double>(), 0) << "a gate beyond its bound";
  EXPECT_NE(slope[4].item<double>(), 0) << "gates have no lower bound";
}

}  // namespace
}  // namespace slime::kernels
