/// Every differentiable kernel in float64 against central differences, weights included.

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "kernels/causal_conv.h"
#include "kernels/delta_decay.h"
#include "kernels/embedding.h"
#include "kernels/experts.h"
#include "kernels/geglu.h"
#include "kernels/linear.h"
#include "kernels/linear_logprob.h"
#include "kernels/rms_norm.h"
#include "kernels/rotary.h"
#include "kernels/swiglu.h"
#include "kernels/tree_attention.h"

namespace slime::kernels {
namespace {

constexpr double kStep = 1e-5;
// Of central differences of smooth functions of numbers near one.
constexpr double kTolerance = 1e-7;

Tensor numbers(std::vector<int64_t> shape) { return at::randn(shape, at::kDouble); }

/// A matrix, looked at as vectors are.
Param as_param(const MatrixParam& matrix) { return {matrix.matrix.values, matrix.grad}; }

Param weight(std::vector<int64_t> shape) {
  Param param{numbers(shape), {}};
  param.grad = at::zeros_like(param.value);
  return param;
}

/// d f / d x by central differences, x changed in place.
Tensor differences(Tensor x, const std::function<double()>& f) {
  Tensor out = at::empty_like(x);
  double* at_x = x.data_ptr<double>();
  for (int64_t i = 0; i < x.numel(); ++i) {
    const double before = at_x[i];
    at_x[i] = before + kStep;
    const double up = f();
    at_x[i] = before - kStep;
    const double down = f();
    at_x[i] = before;
    out.data_ptr<double>()[i] = (up - down) / (2 * kStep);
  }
  return out;
}

/// `f` maps x to any outputs' weighted sum. Checks the gradient of x and of the parameters it uses.
void check_gradients(Tensor x, const std::vector<Param>& params,
                     const std::function<Tensor(const Tensor&)>& f) {
  const auto value = [&] {
    at::NoGradGuard no_grad;
    return f(x.clone()).item<double>();
  };
  Tensor leaf = x.clone().requires_grad_();
  torch::autograd::backward({f(leaf)}, {});
  EXPECT_LT((leaf.grad() - differences(x, value)).abs().max().item<double>(), kTolerance);
  for (const Param& param : params) {
    EXPECT_LT((param.grad - differences(param.value, value)).abs().max().item<double>(),
              kTolerance);
  }
}

Tensor weighted(const Tensor& y) {
  return (y * at::sin(at::arange(1, y.numel() + 1, y.options())).view(y.sizes())).sum();
}

class KernelGradient : public ::testing::Test {
 protected:
  void SetUp() override { at::manual_seed(3); }
};

TEST_F(KernelGradient, OfALinearLayer) {
  const Param w = weight({5, 4}), b = weight({5});
  check_gradients(numbers({3, 4}), {w, b},
                  [&](const Tensor& x) { return weighted(linear(x, w, b)); });
}

TEST_F(KernelGradient, OfExpertsAndOfTheWeightsOfVisits) {
  const ExpertStack stack{weight({3 * 2 * 4, 5}),
                          weight({3 * 5, 4})};  // the last is visited by none
  const Tensor expert_TK = at::tensor({1, 0, 0, 1, 1, 0, 0, 1}, at::kLong).view({4, 2});
  const ExpertVisits visits = group_by_expert(expert_TK, 3);
  const Tensor x = numbers({4, 5}), visit_weight = numbers({4, 2});
  check_gradients(x, {as_param(stack.gate_up), as_param(stack.down)}, [&](const Tensor& input) {
    return weighted(experts(input, visits, visit_weight, stack));
  });
  check_gradients(visit_weight, {}, [&](const Tensor& weights) {
    return weighted(experts(x, visits, weights, stack));
  });
}

TEST_F(KernelGradient, OfExpertsWhoseGatesAndUpsAreInTurnsAndOfTheirBiases) {
  ExpertStack stack{weight({2, 5, 2 * 3}), weight({2, 3, 5}), true,
                    weight({2, 2 * 3}),    weight({2, 5}),    1.5};
  const Tensor expert_TK = at::tensor({1, 0, 0, 1, 1, 0}, at::kLong).view({3, 2});
  const ExpertVisits visits = group_by_expert(expert_TK, 2);
  const Tensor x = numbers({3, 5}), visit_weight = numbers({3, 2});
  check_gradients(
      x, {as_param(stack.gate_up), as_param(stack.down), stack.gate_up_bias, stack.down_bias},
      [&](const Tensor& input) { return weighted(experts(input, visits, visit_weight, stack)); });
  check_gradients(visit_weight, {}, [&](const Tensor& weights) {
    return weighted(experts(x, visits, weights, stack));
  });
}

TEST_F(KernelGradient, OfTheGatedActivationWithGelu) {
  check_gradients(numbers({3, 8}), {}, [](const Tensor& x) { return weighted(geglu(x)); });
}

TEST_F(KernelGradient, OfTheNormAndItsFusedAddition) {
  const Param w = weight({6});
  check_gradients(numbers({3, 6}), {w},
                  [&](const Tensor& x) { return weighted(rms_norm(x, w, 1e-3)); });
  const Param v = weight({6});
  const Tensor update = numbers({3, 6});
  check_gradients(numbers({3, 6}), {v}, [&](const Tensor& x) {
    const AddedNorm out = add_rms_norm(x, update, v, 1e-3);
    return weighted(out.normed_TH) + weighted(out.sum_TH.square());
  });
}

TEST_F(KernelGradient, OfSwiglu) {
  check_gradients(numbers({3, 8}), {}, [](const Tensor& x) { return weighted(swiglu(x)); });
}

TEST_F(KernelGradient, OfTheRotationWithNorms) {
  const RotaryShape shape{2, 1, 4, 1e-3};
  const Tensor angle = at::rand({9, 2}), positions = at::tensor({0, 3, 8}, at::kLong);
  const Param q = weight({4}), k = weight({4});
  check_gradients(numbers({3, 16}), {q, k}, [&](const Tensor& x) {
    return weighted(norm_rotate(x, positions, q, k, angle.cos(), angle.sin(), shape));
  });
  check_gradients(numbers({3, 16}), {}, [&](const Tensor& x) {
    return weighted(norm_rotate(x, positions, {}, {}, angle.cos(), angle.sin(), shape));
  });
}

TEST_F(KernelGradient, OfTheShortConvolutionIntoParents) {
  const Param w = weight({5, 1, 3});
  const DeltaPlan plan =
      make_delta_plan({{0, 3, -1}, {3, 4, 0}, {4, 7, 0}, {7, 9, -1}}, 3, false, at::kCPU);
  check_gradients(numbers({9, 5}), {w},
                  [&](const Tensor& x) { return weighted(causal_conv(x, w, plan)); });
}

TEST_F(KernelGradient, OfTheDecayOfStates) {
  const Param a_log = weight({4}), bias = weight({4});
  check_gradients(numbers({3, 4}), {a_log, bias},
                  [&](const Tensor& a) { return weighted(log_decay(a, a_log, bias)); });
}

TEST_F(KernelGradient, OfTreeAttention) {
  const std::vector<Segment> segments = {{0, 3, -1}, {3, 5, 0}, {5, 7, 0}, {7, 8, 2}};
  for (const int64_t window : {0, 2}) {
    for (const double cap : {0.0, 0.7}) {
      check_gradients(numbers({8, 16}), {}, [&](const Tensor& x) {
        return weighted(tree_attention(x, segments, {2, 1, 4, 0}, {0.5, window, cap}));
      });
    }
  }
}

TEST_F(KernelGradient, OfLogProbsAndEntropiesInChunks) {
  const Tensor target = at::tensor({0, 6, 3, 3, 1}, at::kLong);
  for (const int64_t kept_bytes :
       {0, 100, 1000}) {  // logits computed twice, kept in part, and kept
    const Param head = weight({7, 4});
    const LinearLogProbOptions options{.temperature = 0.8,
                                       .entropy_gradient = true,
                                       .chunk_bytes = 60,
                                       .kept_bytes = kept_bytes,
                                       .keeps_some = kept_bytes == 100};
    check_gradients(numbers({5, 4}), {head}, [&](const Tensor& x) {
      const LogProbs out = linear_logprob(x, head, target, options);
      return weighted(out.logprob_R) + weighted(out.entropy_R.square());
    });
  }
}

TEST_F(KernelGradient, OfLogProbsAndEntropiesOfCappedLogits) {
  const Tensor target = at::tensor({0, 6, 3, 3, 1}, at::kLong);
  // What each row of a nucleus kept, besides its target.
  const KeptTokens nucleus{at::tensor({1, 2, 6, 4, 5, 0}, at::kLong),
                           at::tensor({0, 2, 3, 3, 5, 6}, at::kLong)};
  for (const KeptTokens& kept : {KeptTokens{}, nucleus}) {
    for (const int64_t kept_bytes : {0, 1000}) {
      const Param head = weight({7, 4});
      const LinearLogProbOptions options{.temperature = 0.8,
                                         .entropy_gradient = true,
                                         .chunk_bytes = 60,
                                         .kept_bytes = kept_bytes,
                                         .kept_tokens = kept,
                                         .cap = 1.3};
      check_gradients(numbers({5, 4}), {head}, [&](const Tensor& x) {
        const LogProbs out = linear_logprob(x, head, target, options);
        return weighted(out.logprob_R) + weighted(out.entropy_R.square());
      });
    }
  }
}

TEST_F(KernelGradient, OfLogProbsOfListedTokens) {
  const Tensor target = at::tensor({0, 6, 3, 3, 1}, at::kLong);
  // Of each row's nucleus all are listed; of a row without one some, the target or not.
  const KeptTokens listed{at::tensor({1, 0, 2, 6, 4, 3, 1, 5, 0}, at::kLong),
                          at::tensor({0, 3, 4, 4, 6, 9}, at::kLong)};
  for (const bool is_nucleus : {true, false}) {
    for (const double cap : {0.0, 1.3}) {
      for (const int64_t kept_bytes : {0, 1000}) {
        const Param head = weight({7, 4});
        const LinearLogProbOptions options{.temperature = 0.8,
                                           .entropy_gradient = true,
                                           .chunk_bytes = 60,
                                           .kept_bytes = kept_bytes,
                                           .kept_tokens = is_nucleus ? listed : KeptTokens{},
                                           .listed_tokens = listed,
                                           .cap = cap};
        check_gradients(numbers({5, 4}), {head}, [&](const Tensor& x) {
          const LogProbs out = linear_logprob(x, head, target, options);
          return weighted(out.logprob_R) + weighted(out.entropy_R.square()) +
                 weighted(out.listed_A.square());
        });
      }
    }
  }
}

TEST_F(KernelGradient, OfListedTokensIsThatOfTheWholeDistribution) {
  const Param head = weight({7, 4});
  const Tensor x = numbers({2, 4});
  LinearLogProbOptions options{.temperature = 0.8};
  options.listed_tokens = {at::arange(14, at::kLong).remainder(7),
                           at::tensor({0, 7, 14}, at::kLong)};
  const LogProbs out = linear_logprob(x, head, at::tensor({0, 6}, at::kLong), options);
  const Tensor expected = (x.mm(head.value.t()) / 0.8).log_softmax(-1).view({-1});
  EXPECT_LT((out.listed_A - expected).abs().max().item<double>(), 1e-12);
}

TEST_F(KernelGradient, OfTheEmbeddingAddsUpRepeatedTokens) {
  const Param table = weight({4, 3});
  const Tensor ids = at::tensor({1, 3, 1}, at::kLong), dy = numbers({3, 3});
  torch::autograd::backward({embedding(ids, table, at::kDouble)}, {dy});
  EXPECT_TRUE(table.grad[1].allclose(dy[0] + dy[2]));
  EXPECT_TRUE(table.grad[3].allclose(dy[1]));
  EXPECT_EQ(table.grad[0].abs().sum().item<double>(), 0);
}

TEST_F(KernelGradient, IsNotTakenForEntropiesUnlessAsked) {
  const Param head = weight({7, 4});
  const LogProbs out =
      linear_logprob(numbers({2, 4}).requires_grad_(), head, at::tensor({0, 6}, at::kLong), {});
  EXPECT_TRUE(out.logprob_R.requires_grad());
  EXPECT_FALSE(out.entropy_R.requires_grad());
}

TEST_F(KernelGradient, OfNothingIsNothing) {
  const Param head = weight({7, 4});
  Tensor x = at::zeros({0, 4}, at::kDouble).requires_grad_();
  const LogProbs out = linear_logprob(x, head, at::zeros({0}, at::kLong), {});
  torch::autograd::backward({out.logprob_R.sum()}, {});
  EXPECT_EQ(out.logprob_R.size(0), 0);
  EXPECT_EQ(head.grad.abs().sum().item<double>(), 0);
}

}  // namespace
}  // namespace slime::kernels
