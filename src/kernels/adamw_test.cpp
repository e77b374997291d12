#include "kernels/adamw.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace slime::kernels {
namespace {

struct Buffers {
  Tensor weights, master, first, second, grad;
};

Buffers make_buffers(int64_t size, at::ScalarType dtype) {
  const auto real = dtype == at::kDouble ? at::kDouble : at::kFloat;
  at::manual_seed(size);
  const Tensor weights = at::randn({size}, real).to(dtype);
  return {weights, weights.to(real), 0.1 * at::randn({size}, real), 0.01 * at::rand({size}, real),
          at::randn({size}, real)};
}

/// The textbook form, in double.
Tensor expected_weights(const Buffers& b, const AdamStep& step, bool decays) {
  const Tensor grad = b.grad.to(at::kDouble) * step.grad_scale;
  const Tensor m = step.beta1 * b.first.to(at::kDouble) + (1 - step.beta1) * grad;
  const Tensor v = step.beta2 * b.second.to(at::kDouble) + (1 - step.beta2) * grad * grad;
  const Tensor m_hat = m / (1 - std::pow(step.beta1, step.step));
  const Tensor v_hat = v / (1 - std::pow(step.beta2, step.step));
  const Tensor w = b.master.to(at::kDouble) * (decays ? 1 - step.lr * step.weight_decay : 1.0);
  return w - step.lr * m_hat / (v_hat.sqrt() + step.eps);
}

TEST(AdamW, MatchesTheTextbookFormAtEverySizeAndPrecision) {
  const AdamStep step{
      .lr = 0.01, .beta1 = 0.9, .beta2 = 0.98, .weight_decay = 0.1, .grad_scale = 0.5, .step = 3};
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    for (const int64_t size : {1, 7, 8, 127, 128, 129, 70001}) {
      const Buffers b = make_buffers(size, dtype);
      const Buffers before{b.weights.clone(), b.master.clone(), b.first.clone(), b.second.clone(),
                           b.grad};
      const AdamRange whole[] = {{0, size, true}};
      adamw_(b.weights, b.master, b.first, b.second, b.grad, whole, step);
      const Tensor expected = expected_weights(before, step, true);
      EXPECT_LT((b.master.to(at::kDouble) - expected).abs().max().item<double>(),
                dtype == at::kDouble ? 1e-14 : 2e-6);
      if (dtype == at::kBFloat16 || dtype == at::kHalf) {
        EXPECT_TRUE(at::equal(b.weights, b.master.to(dtype)));
      }
    }
  }
}

TEST(AdamW, DecaysOnlyTheRangesThatSaySoAndLeavesTheRestAlone) {
  const Buffers b = make_buffers(30, at::kFloat);
  const Tensor before = b.weights.clone();
  b.grad.zero_();
  b.first.zero_();
  const AdamRange ranges[] = {{0, 10, true}, {10, 20, false}};
  adamw_(b.weights, b.weights, b.first, b.second, b.grad, ranges, {.lr = 0.5, .weight_decay = 0.5});
  EXPECT_TRUE(at::allclose(b.weights.slice(0, 0, 10), before.slice(0, 0, 10) * 0.75));
  EXPECT_TRUE(at::equal(b.weights.slice(0, 10), before.slice(0, 10)));
}

TEST(AdamW, WritesNanWeightsAsNan) {
  const Buffers b = make_buffers(16, at::kBFloat16);
  b.master[3] = std::numeric_limits<float>::quiet_NaN();
  const AdamRange whole[] = {{0, 16, false}};
  adamw_(b.weights, b.master, b.first, b.second, b.grad, whole, {.lr = 0.1});
  EXPECT_TRUE(std::isnan(b.weights[3].item<float>()));
  EXPECT_FALSE(std::isnan(b.weights[4].item<float>()));
}

TEST(SumOfSquares, CountsEveryElementOnceInDoublePrecision) {
  for (const int64_t size : {0, 1, 8, 127, 65536, 65537, 200003}) {
    const Tensor x = at::arange(size, at::kFloat).remainder(7);
    EXPECT_DOUBLE_EQ(sum_of_squares(x), x.to(at::kDouble).square().sum().item<double>());
  }
  EXPECT_TRUE(std::isnan(sum_of_squares(at::tensor({1.0f, std::nanf("")}))));
  EXPECT_TRUE(
      std::isinf(sum_of_squares(at::tensor({1.0f, std::numeric_limits<float>::infinity()}))));
}

}  // namespace
}  // namespace slime::kernels
