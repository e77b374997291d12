#include "model/layers/router.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace slime::model {
namespace {

/// Softmax of the logits is 0.5, 0.25, 0.125, 0.125.
Tensor one_token() { return at::tensor({8.0, 4.0, 2.0, 2.0}, at::kDouble).log().unsqueeze(0); }

ExpertsConfig two_of_four() {
  ExpertsConfig config;
  config.count = 4;
  config.per_token = 2;
  return config;
}

void expect_weights(const Routing& routing, double first, double second) {
  EXPECT_NEAR(routing.weight_TK[0][0].item<double>(), first, 1e-12);
  EXPECT_NEAR(routing.weight_TK[0][1].item<double>(), second, 1e-12);
}

TEST(Router, WeighsTheChosenWithTheirShareOfAllExperts) {
  const Routing routing = route(one_token(), two_of_four());
  EXPECT_EQ(routing.expert_TK[0][0].item<int64_t>(), 0);
  EXPECT_EQ(routing.expert_TK[0][1].item<int64_t>(), 1);
  expect_weights(routing, 0.5, 0.25);
}

TEST(Router, GivenExpertsAreWeighedAnewAndANegativeOneIsFree) {
  ExpertsConfig config = two_of_four();
  config.normalizes = true;
  const Tensor two_tokens = at::cat({one_token(), one_token()}).requires_grad_();
  const Tensor given_TK = at::tensor({3, 1, -1, -1}, at::kShort).view({2, 2});
  const Routing routing = route(two_tokens, config, {}, given_TK);
  EXPECT_TRUE(routing.expert_TK.equal(at::tensor({3, 1, 0, 1}, at::kLong).view({2, 2})));
  expect_weights(routing, 1.0 / 3, 2.0 / 3);
  routing.weight_TK[0][1].backward();
  EXPECT_GT(two_tokens.grad()[0][1].item<double>(), 0.1) << "the router learns";
}

TEST(Router, NormalizesThenScales) {
  ExpertsConfig config = two_of_four();
  config.normalizes = true;
  expect_weights(route(one_token(), config), 2.0 / 3, 1.0 / 3);
  config.scaling = 1.5;
  expect_weights(route(one_token(), config), 1.0, 0.5);
}

TEST(Router, ScoresOfASigmoidDoNotCompete) {
  ExpertsConfig config = two_of_four();
  config.score = RouterScore::kSigmoid;
  expect_weights(route(one_token(), config), 8.0 / 9, 4.0 / 5);
}

TEST(Router, ASelectionBiasChoosesAndDoesNotWeigh) {
  ExpertsConfig config = two_of_four();
  config.score = RouterScore::kSigmoid;
  // Scores are 8/9, 4/5, 2/3, 2/3.
  const Tensor bias_E = at::tensor({0.0F, -1.0F, 0.0F, 0.5F});
  const Routing routing = route(one_token(), config, bias_E);
  EXPECT_EQ(routing.expert_TK[0][0].item<int64_t>(), 3);
  EXPECT_EQ(routing.expert_TK[0][1].item<int64_t>(), 0);
  expect_weights(routing, 2.0 / 3, 8.0 / 9);
}

TEST(Router, WeightsOfVisitsAreThoseOfTheirRoute) {
  ExpertsConfig config = two_of_four();
  config.scaling = 1.5;
  for (const bool normalizes : {false, true}) {
    config.normalizes = normalizes;
    const Routing routing = route(one_token(), config);
    EXPECT_TRUE(weights_of_visits(one_token(), config, routing.expert_TK).equal(routing.weight_TK));
  }
}

TEST(Router, ChoosesInsideTheBestGroups) {
  ExpertsConfig config = two_of_four();
  config.num_groups = 2;
  config.groups_per_token = 1;
  // Shares like 0.40, 0.10 and 0.30, 0.21: the first group has the best expert, the second more in all.
  const Tensor logits = at::tensor({0.4, 0.1, 0.3, 0.21}, at::kDouble).log().unsqueeze(0);
  const Routing by_sum = route(logits, config);
  EXPECT_EQ(by_sum.expert_TK[0][0].item<int64_t>(), 2);
  EXPECT_EQ(by_sum.expert_TK[0][1].item<int64_t>(), 3);
  config.best_of_group = 1;
  const Routing by_best = route(logits, config);
  EXPECT_EQ(by_best.expert_TK[0][0].item<int64_t>(), 0);
  EXPECT_EQ(by_best.expert_TK[0][1].item<int64_t>(), 1);
}

}  // namespace
}  // namespace slime::model
