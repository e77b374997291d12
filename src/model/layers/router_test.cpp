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

}  // namespace
}  // namespace slime::model
