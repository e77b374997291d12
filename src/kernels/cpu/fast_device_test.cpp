/// The fast kernels against their plain twins (ReferenceDevice) in float64.

#include "kernels/cpu/fast_device.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "kernels/cpu/processor.h"
#include "kernels/cpu/tree_cases.h"

namespace slime::kernels::cpu {
namespace {

constexpr int64_t kSizes[] = {1, 127, 128, 129};
/// Relative to the largest element: float32 rounding of sums of some hundred terms.
constexpr double kTolerance = 2e-5;

Tensor wide(const Tensor& x) { return x.defined() ? x.to(at::kDouble) : x; }

void expect_close(const Tensor& fast, const Tensor& slow, const std::string& what,
                  double tolerance = kTolerance) {
  ASSERT_EQ(fast.sizes(), slow.sizes()) << what;
  const double scale = std::max(1.0, wide(slow).abs().max().item<double>());
  EXPECT_LT((wide(fast) - wide(slow)).abs().max().item<double>(), tolerance * scale) << what;
}

class FastKernels : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_avx2()) GTEST_SKIP() << "this processor has no AVX2";
    at::manual_seed(11);
  }
  FastDevice fast;
  ReferenceDevice slow;
};

TEST_F(FastKernels, NormAndItsGradientEqualTheTwin) {
  for (const int64_t rows : kSizes) {
    for (const int64_t size : {1, 72, 129, 576}) {
      for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
        const Tensor x = at::randn({rows, size}), weight = at::randn({size}).to(dtype),
                     dy = at::randn({rows, size});
        expect_close(fast.rms_norm(x, weight, 1e-5), slow.rms_norm(wide(x), wide(weight), 1e-5),
                     "norm");
        const Tensor update = at::randn({rows, size});
        Tensor sum = x.clone(), sum_wide = wide(x);
        expect_close(fast.add_rms_norm_(sum, update, weight, 1e-5),
                     slow.add_rms_norm_(sum_wide, wide(update), wide(weight), 1e-5), "added norm");
        expect_close(sum, sum_wide, "sum");
        Tensor grad = at::ones({size}), grad_wide = wide(grad);
        expect_close(fast.rms_norm_backward(dy, x, weight, 1e-5, grad),
                     slow.rms_norm_backward(wide(dy), wide(x), wide(weight), 1e-5, grad_wide),
                     "dx");
        expect_close(grad, grad_wide, "weight gradient");
      }
    }
  }
}

TEST_F(FastKernels, SwigluAndItsGradientEqualTheTwin) {
  for (const int64_t rows : kSizes) {
    const Tensor gate_up = 3 * at::randn({rows, 2 * 130}), dy = at::randn({rows, 130});
    expect_close(fast.swiglu(gate_up), slow.swiglu(wide(gate_up)), "swiglu");
    expect_close(fast.swiglu_backward(dy, gate_up), slow.swiglu_backward(wide(dy), wide(gate_up)),
                 "gradient");
  }
  const Tensor extreme = at::tensor({-200.0F, 200.0F, 1.0F, 1.0F}).view({1, 4});
  expect_close(fast.swiglu(extreme), slow.swiglu(wide(extreme)), "extreme");
}

TEST_F(FastKernels, RotationWithAndWithoutNormEqualsTheTwin) {
  const RotaryShape shape{6, 2, 12, 1e-6};
  const int64_t width = (6 + 2 * 2) * 12;
  const Tensor angle = at::rand({300, 6}) * 6, cos = angle.cos(), sin = angle.sin();
  for (const int64_t rows : kSizes) {
    for (const bool with_norm : {false, true}) {
      const Tensor x = at::randn({rows, width}), dy = at::randn({rows, width});
      const Tensor positions = at::randint(300, {rows}, at::kLong);
      const Tensor q = with_norm ? at::randn({12}) : Tensor(),
                   k = with_norm ? at::randn({12}) : Tensor();
      expect_close(fast.norm_rotate(x, positions, q, k, cos, sin, shape),
                   slow.norm_rotate(wide(x), positions, wide(q), wide(k), cos, sin, shape),
                   "rotated");
      Tensor dq = with_norm ? at::zeros({12}) : Tensor(),
             dk = with_norm ? at::zeros({12}) : Tensor();
      Tensor dq_wide = wide(dq), dk_wide = wide(dk);
      expect_close(fast.norm_rotate_backward(dy, x, positions, q, k, cos, sin, shape, dq, dk),
                   slow.norm_rotate_backward(wide(dy), wide(x), positions, wide(q), wide(k), cos,
                                             sin, shape, dq_wide, dk_wide),
                   "gradient");
      if (!with_norm) continue;
      expect_close(dq, dq_wide, "q norm");
      expect_close(dk, dk_wide, "k norm");
    }
  }
}

TEST_F(FastKernels, SoftmaxStatisticsAndGradientEqualTheTwin) {
  for (const int64_t rows : kSizes) {
    const int64_t vocabulary = 2500;
    const Tensor logits = 8 * at::randn({rows, vocabulary}),
                 target = at::randint(vocabulary, {rows}, at::kLong);
    Tensor a[3], b[3];
    for (int i = 0; i < 3; ++i) {
      a[i] = at::empty({rows});
      b[i] = at::empty({rows}, at::kDouble);
    }
    fast.softmax_statistics(logits, target, 0.7, a[0], a[1], a[2]);
    slow.softmax_statistics(wide(logits), target, 0.7, b[0], b[1], b[2]);
    for (int i = 0; i < 3; ++i) expect_close(a[i], b[i], "statistics");
    const Tensor dlogprob = at::randn({rows}), dentropy = at::randn({rows});
    for (const Tensor& d : {dentropy, Tensor()}) {
      const Tensor narrow = fast.softmax_gradient(logits.clone(), target, {0.7}, a[2], a[1],
                                                  dlogprob, d, at::kBFloat16);
      Tensor grad = logits.clone(), grad_wide = wide(logits);
      fast.softmax_backward_(grad, target, 0.7, a[2], a[1], dlogprob, d);
      slow.softmax_backward_(grad_wide, target, 0.7, b[2], b[1], wide(dlogprob), wide(d));
      expect_close(grad, grad_wide, "gradient");
      EXPECT_TRUE(narrow.equal(grad.to(at::kBFloat16)));
    }
  }
}

TEST_F(FastKernels, GradientOfCappedLogitsEqualsTheTwin) {
  for (const int64_t rows : kSizes) {
    const Tensor logits = 8 * at::randn({rows, 2501}),
                 target =
                     at::randint(2501, {rows}, at::kLong).masked_fill(at::rand({rows}) < 0.2, -1);
    Tensor capped = logits.clone(), capped_wide = wide(logits);
    fast.soft_cap_(capped, 5);
    slow.soft_cap_(capped_wide, 5);
    expect_close(capped, capped_wide, "cap");
    Tensor a[3];
    for (Tensor& x : a) x = at::empty({rows}, at::kDouble);
    slow.softmax_statistics(capped_wide, target, 0.7, a[0], a[1], a[2]);
    const Tensor dlogprob = at::randn({rows}), dentropy = at::randn({rows});
    for (const Tensor& d : {dentropy, Tensor()}) {
      const Tensor expected = slow.softmax_gradient(capped_wide.clone(), target, {0.7, 5}, a[2],
                                                    a[1], wide(dlogprob), wide(d), at::kDouble);
      const auto gradient = [&](at::ScalarType type) {
        return fast.softmax_gradient(capped.clone(), target, {0.7, 5}, a[2].to(at::kFloat),
                                     a[1].to(at::kFloat), dlogprob, d, type);
      };
      expect_close(gradient(at::kFloat), expected, "gradient");
      EXPECT_TRUE(gradient(at::kBFloat16).equal(gradient(at::kFloat).to(at::kBFloat16)));
    }
  }
}

// From numbers far below one, where 1 - 2 / (1 + e^2x) has no digits left, to those beyond any cap.
TEST_F(FastKernels, SoftCapIsPreciseForSmallAndLargeNumbers) {
  const Tensor size = at::logspace(-8, 4, 5000, 10, at::kDouble);
  const Tensor x = at::cat({size, -size, at::zeros({3}, at::kDouble)}).to(at::kFloat);
  Tensor capped = x.clone(), expected = x.to(at::kDouble);
  fast.soft_cap_(capped, 50);
  slow.soft_cap_(expected, 50);
  const Tensor error = (capped.to(at::kDouble) - expected).abs() / (expected.abs() + 1e-30);
  EXPECT_LT(error.max().item<double>(), 5e-7);
}

TEST_F(FastKernels, TreeAttentionAndItsGradientEqualTheTwin) {
  for (const auto& [heads, cap] : {std::pair{RotaryShape{6, 2, 12, 0}, 0.0},
                                   {RotaryShape{3, 3, 64, 0}, 0.0},
                                   {RotaryShape{4, 1, 24, 0}, 0.0},
                                   {RotaryShape{6, 2, 12, 0}, 1.5},
                                   {RotaryShape{3, 3, 64, 0}, 1.5}}) {
    for (const TreeCase& c : tree_cases()) {
      const int64_t tokens = c.segments.back().end, out = heads.num_heads * heads.head_dim;
      const TreeAttentionShape shape{0.3, c.window, cap};
      const Tensor x =
          at::randn({tokens, (heads.num_heads + 2 * heads.num_kv_heads) * heads.head_dim});
      const Tensor dy = at::randn({tokens, out});
      Tensor a, b;
      const Tensor y = fast.tree_attention(x, c.segments, heads, shape, a);
      const Tensor y_wide = slow.tree_attention(wide(x), c.segments, heads, shape, b);
      expect_close(y, y_wide, c.name);
      expect_close(a, b, c.name);
      expect_close(
          fast.tree_attention_backward(dy, y, x, a, c.segments, heads, shape),
          slow.tree_attention_backward(wide(dy), y_wide, wide(x), b, c.segments, heads, shape),
          c.name);
    }
  }
}

TEST_F(FastKernels, Bfloat16ActivationsStayWithinTheirRounding) {
  const Tensor x = at::randn({130, 96}).to(at::kBFloat16),
               weight = at::randn({96}).to(at::kBFloat16);
  constexpr double kBfloat16 = 8e-3;  // half a unit of eight bits
  expect_close(fast.rms_norm(x, weight, 1e-6), slow.rms_norm(wide(x), wide(weight), 1e-6), "norm",
               kBfloat16);
  expect_close(fast.swiglu(x), slow.swiglu(wide(x)), "swiglu", kBfloat16);
  EXPECT_TRUE(fast.sum(x, x.flip(0).contiguous()).equal(x + x.flip(0)));
  const RotaryShape heads{2, 1, 24, 0};
  Tensor a, b;
  expect_close(fast.tree_attention(x, {{0, 130, -1}}, heads, {0.2, 0}, a),
               slow.tree_attention(wide(x), {{0, 130, -1}}, heads, {0.2, 0}, b), "attention",
               kBfloat16);
}

}  // namespace
}  // namespace slime::kernels::cpu
