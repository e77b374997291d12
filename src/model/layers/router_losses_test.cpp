#include "model/layers/router_losses.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "model/layers/router.h"

namespace slime::model {
namespace {

ExpertsConfig two_of_five(RouterScore score) {
  ExpertsConfig config;
  config.count = 5;
  config.per_token = 2;
  config.score = score;
  return config;
}

Tensor some_logits(int64_t rows) {
  return at::sin(at::arange(rows * 5, at::kDouble) * 1.7).view({rows, 5}) * 2;
}

/// Three rows, of which the first one is in both sequences: {0, 1} and {0, 2}.
RouterPass shared_row(RouterLosses::Balance balance) {
  RouterPass pass;
  pass.losses = {.balance = balance, .balance_coef = 0.7, .z_coef = 0.3};
  pass.gradient_scale = 1.5;
  pass.rows.count_T = at::tensor({2.0, 1.0, 1.0}, at::kDouble);
  pass.rows.length_Q = at::tensor({2.0, 2.0}, at::kDouble);
  pass.rows.sequence_P = at::tensor({0, 0, 1, 1}, at::kLong);
  pass.rows.row_P = at::tensor({0, 1, 0, 2}, at::kLong);
  pass.terms_Y2 = at::zeros({2, 2}, at::kDouble);
  return pass;
}

/// (E / K) sum over e of (share of visits) (mean score) of these rows, one after the other.
Tensor balance_of(const Tensor& logits_TE, const ExpertsConfig& config) {
  const Tensor score_TE = config.score == RouterScore::kSoftmax
                              ? logits_TE.softmax(-1)
                              : logits_TE.sigmoid() / logits_TE.sigmoid().sum(-1, true);
  const auto rows = static_cast<double>(logits_TE.size(0));
  Tensor sum = at::zeros({}, at::kDouble);
  for (int64_t e = 0; e < config.count; ++e) {
    double visits = 0;
    for (int64_t t = 0; t < logits_TE.size(0); ++t) {
      const Tensor better = (score_TE[t] > score_TE[t][e]).sum();
      visits += better.item<int64_t>() < config.per_token ? 1 : 0;
    }
    sum = sum + score_TE.select(1, e).sum() / rows * (visits / rows);
  }
  return sum * (static_cast<double>(config.count) / static_cast<double>(config.per_token));
}

TEST(RouterLosses, BringTheGradientsThatAutogradHasOfTheirDefinition) {
  using Balance = RouterLosses::Balance;
  for (const RouterScore score : {RouterScore::kSoftmax, RouterScore::kSigmoid}) {
    for (const Balance balance : {Balance::kMicroBatch, Balance::kSequence}) {
      const ExpertsConfig config = two_of_five(score);
      RouterPass pass = shared_row(balance);
      const Tensor logits_TE = some_logits(3).requires_grad_();
      const Tensor out_TE = with_router_losses(logits_TE, config, pass, 1);
      EXPECT_TRUE(out_TE.equal(logits_TE));
      torch::autograd::backward({(out_TE * 3).sum()}, {});

      const Tensor plain_TE = some_logits(3).requires_grad_();
      const auto rows = [&](std::vector<int64_t> index) {
        return plain_TE.index_select(0, at::tensor(index, at::kLong));
      };
      const Tensor first = rows({0, 1}), second = rows({0, 2}), all = rows({0, 1, 0, 2});
      const Tensor term = balance == Balance::kMicroBatch
                              ? balance_of(all, config)
                              : (balance_of(first, config) + balance_of(second, config)) / 2;
      const Tensor z = all.logsumexp(-1).square().mean();
      torch::autograd::backward({(plain_TE * 3).sum() + 1.5 * (0.7 * term + 0.3 * z)}, {});
      EXPECT_TRUE(at::allclose(logits_TE.grad(), plain_TE.grad(), 1e-12, 1e-13));
      EXPECT_GT((logits_TE.grad() - 3).abs().max().item<double>(), 1e-3);
      EXPECT_NEAR(pass.terms_Y2[1][0].item<double>(), 0.7 * term.item<double>(), 1e-12);
      EXPECT_NEAR(pass.terms_Y2[1][1].item<double>(), 0.3 * z.item<double>(), 1e-12);
      EXPECT_EQ(pass.terms_Y2[0].abs().sum().item<double>(), 0) << "another layer's";
    }
  }
}

TEST(RouterLosses, AnEvenLoadCostsTheCoefficient) {
  const ExpertsConfig config = two_of_five(RouterScore::kSoftmax);
  RouterPass pass = shared_row(RouterLosses::Balance::kMicroBatch);
  pass.losses.z_coef = 0;
  // Each expert is among the two best of two of five rows.
  Tensor logits_TE = at::zeros({5, 5}, at::kDouble);
  for (int64_t t = 0; t < 5; ++t) logits_TE[t][t] = logits_TE[t][(t + 1) % 5] = 1;
  pass.rows.count_T = at::ones({5}, at::kDouble);
  pass.rows.length_Q = at::full({1}, 5.0, at::kDouble);
  with_router_losses(logits_TE.requires_grad_(), config, pass, 0);
  EXPECT_NEAR(pass.terms_Y2[0][0].item<double>(), 0.7, 1e-12);
}

}  // namespace
}  // namespace slime::model
