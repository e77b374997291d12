// Loss and gradients are those of the samples, whatever packing, prefix sharing and micro-batch
// split make of them.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "core/clock.h"
#include "model/golden_models_for_tests.h"
#include "train_cases.h"

namespace slime::parity {
namespace {

using namespace train;

/// How a step is cut. max_tokens 0: micro-batches of a fixed number of samples.
struct Cut {
  bool share = false;
  int64_t min_saved = 0;
  int64_t micro_batch_size = 1;
  int64_t max_tokens = 0;
};

std::unique_ptr<model::Network> load(const std::string& name) {
  return model::load_network(golden_models::directory(name), model::Precision::of("float64"));
}

Outcome run(const TrainBatch& batch, TrainConfig config, const Cut& cut,
            const std::string& name = "qwen3") {
  config.packing = {cut.share, cut.min_saved};
  config.batching.micro_batch_size = cut.micro_batch_size;
  config.batching.use_dynamic_batch_size = cut.max_tokens > 0;
  config.batching.max_tokens_per_gpu = cut.max_tokens;
  const auto network = load(name);
  SystemClock clock;
  OtherNetworks others;
  if (needs_reference(config)) others.reference = load(name);
  Trainer trainer(*network, config, clock, std::move(others));
  const algo::MetricSums sums = trainer.accumulate_gradients(batch);
  return {sums, network->weights().grad().clone()};
}

void expect_invariant(const TrainBatch& batch, const TrainConfig& config,
                      const std::string& name = "qwen3") {
  const Outcome plain = run(batch, config, {}, name);
  for (const Cut& cut : {Cut{false, 0, 100, 0}, Cut{true, 1, 100, 0}, Cut{true, 16, 3, 0},
                         Cut{true, 1, 1, 40}, Cut{false, 0, 1, 40}, Cut{true, 8, 1, 1000}}) {
    SCOPED_TRACE(::testing::Message() << "share " << cut.share << ", micro-batch "
                                      << cut.micro_batch_size << ", tokens " << cut.max_tokens);
    expect_same(run(batch, config, cut, name), plain, 1e-11);
  }
}

class TrainInvarianceOfModel : public ::testing::TestWithParam<const char*> {};

TEST_P(TrainInvarianceOfModel, GrpoDoesNotDependOnPackingSharingOrMicroBatches) {
  expect_invariant(make_train_batch(made_up_groups(3, 4, 128), {}), grpo_config(), GetParam());
}

INSTANTIATE_TEST_SUITE_P(Models, TrainInvarianceOfModel,
                         ::testing::ValuesIn(golden_models::kinds()), golden_models::name_of);

/// Along some direction: the gradient that a user's loss of the logits makes, over the loss's own slope.
double share_of_users_gradient(const std::string& name) {
  const TrainBatch batch = make_train_batch(made_up_groups(1, 3, 320), {});
  TrainConfig config = grpo_config();
  double loss = 0;
  config.users_loss = [&loss](const LossInput& in) {
    const Tensor logits_LV = at::empty({in.num_tokens, in.vocabulary}, at::kDouble);
    in.write_logits(logits_LV);
    const Tensor weight_LV = at::arange(logits_LV.numel(), at::kDouble).sin().view_as(logits_LV);
    LossResult result;
    result.loss = (weight_LV * logits_LV.square()).sum().item<double>();
    result.logits_gradient_LV = 2 * weight_LV * logits_LV;
    loss += result.loss;
    return result;
  };
  const auto network = load(name);
  SystemClock clock;
  OtherNetworks others;
  if (needs_reference(config)) others.reference = load(name);
  Trainer trainer(*network, config, clock, std::move(others));
  trainer.accumulate_gradients(batch);
  const Tensor grad = network->weights().grad().clone(), flat = network->weights().flat();
  at::manual_seed(5);
  const Tensor direction = at::randn(grad.sizes(), at::kDouble), start = flat.clone();
  const auto loss_at = [&](double step) {
    flat.copy_(start + step * direction);
    loss = 0;
    trainer.accumulate_gradients(batch);
    return loss;
  };
  constexpr double kStep = 1e-6;
  const double slope = (loss_at(kStep) - loss_at(-kStep)) / (2 * kStep);
  return (grad * direction).sum().item<double>() / slope;
}

// What the trainer divides by is the batch's; qwen3 has no caps.
TEST(TrainInvariance, AUsersGradientOfLogitsGoesThroughTheirCap) {
  EXPECT_NEAR(share_of_users_gradient("gemma2") / share_of_users_gradient("qwen3"), 1, 1e-5);
}

TEST(TrainInvariance, NeitherDoesThePerTokenMean) {
  TrainConfig config = grpo_config();
  config.reduction = algo::Reduction::kPerToken;
  expect_invariant(make_train_batch(made_up_groups(2, 3, 384), {}), config);
}

TEST(TrainInvariance, NorSequenceRatiosNorWhitening) {
  TrainConfig config = grpo_config();
  config.policy.objective = algo::SequenceClip{0.3, 0.4, 3.0};
  config.normalize_advantages = true;
  expect_invariant(make_train_batch(made_up_groups(2, 3, 384), {}), config);
}

TEST(TrainInvariance, NorSupervisedTraining) {
  TrainConfig config;
  config.objective = Objective::kSupervised;
  std::vector<Sample> samples;
  for (const Group& group : made_up_groups(3, 3, 384)) {
    samples.insert(samples.end(), group.samples.begin(), group.samples.end());
  }
  expect_invariant(make_supervised_batch(samples), config);
}

TEST(TrainInvariance, RecomputingActivationsChangesNothing) {
  const TrainBatch batch = make_train_batch(made_up_groups(2, 3, 384), {});
  TrainConfig config = grpo_config();
  const Outcome plain = run(batch, config, {true, 8, 100, 0});
  config.recompute = model::Recompute::kFull;
  const Outcome again = run(batch, config, {true, 8, 100, 0});
  EXPECT_TRUE(at::equal(plain.grad, again.grad));
  config.recompute = model::Recompute::kSelective;
  const Outcome selective = run(batch, config, {true, 8, 100, 0});
  // A norm may have been taken of a sum before its last rounding.
  EXPECT_TRUE(at::allclose(plain.grad, selective.grad, 1e-5, 1e-7));
}

}  // namespace
}  // namespace slime::parity
