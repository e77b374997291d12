/// Training of a draft layer: what its loss is, that the policy does not know of it, and that it learns.

#include "train/draft_training.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <numeric>

#include "model/tree_attention.h"
#include "train/network_for_tests.h"
#include "train/share.h"

namespace slime::train {
namespace {

std::unique_ptr<model::Network> layered(const std::string& model, const std::string& dtype,
                                        model::DraftLayers drafts = model::DraftLayers::kComputed) {
  return model::load_network(SLIME_SOURCE_DIR "/tests/fixtures/drafts/" + model,
                             model::Precision::of(dtype), comm::Mesh::single(), drafts);
}

/// Two prompts, two responses each, the first of each longer; some tokens are not trained.
std::vector<Group> layer_groups(double best_reward = 1) {
  std::vector<Group> groups;
  for (int64_t g = 0; g < 2; ++g) {
    Group group{g, {}};
    for (int64_t k = 0; k < 2; ++k) {
      Sample sample;
      sample.group = g;
      sample.ordinal = 2 * g + k;
      sample.prompt_length = 19 + g;
      for (int64_t t = 0; t < sample.prompt_length; ++t)
        sample.tokens.push_back(static_cast<TokenId>(10 + 7 * g + t));
      for (int64_t t = 0; t < 6 - 2 * k; ++t) {
        sample.tokens.push_back(static_cast<TokenId>(50 + (11 * k + 5 * t) % 40));
        sample.loss_mask.push_back(k == 1 && t == 1 ? 0 : 1);
      }
      sample.reward = k == 0 ? best_reward : 0.0;
      group.samples.push_back(std::move(sample));
    }
    groups.push_back(std::move(group));
  }
  return groups;
}

TrainConfig with_draft_loss(double scale) {
  TrainConfig config = config_for(4);
  config.batching.max_tokens_per_gpu = 512;
  config.draft_loss_scale = scale;
  return config;
}

/// Sequence by sequence, prediction by prediction.
double slow_draft_loss(model::Network& network, const std::vector<Group>& groups) {
  const at::NoGradGuard no_grad;
  double sum = 0, count = 0;
  for (const Group& group : groups) {
    for (const Sample& sample : group.samples) {
      const auto length = static_cast<int64_t>(sample.tokens.size());
      const Tensor all_T =
          at::tensor(std::vector<int64_t>(sample.tokens.begin(), sample.tokens.end()), at::kLong);
      model::TokenBatch tokens;
      tokens.ids_T = all_T;
      tokens.rotary_row_T = at::arange(length, at::kLong);
      tokens.segments = {{0, length, -1}};
      model::TreeAttention trunk(tokens);
      const Tensor hidden_TH = network.forward(tokens, trunk);
      model::TokenBatch behind;
      behind.ids_T = all_T.narrow(0, 1, length - 1);
      behind.rotary_row_T = at::arange(length - 1, at::kLong);
      behind.segments = {{0, length - 1, -1}};
      model::TreeAttention attention(behind);
      const Tensor logits_TV =
          network.logits(network.draft(0, hidden_TH.narrow(0, 0, length - 1), behind, attention));
      const Tensor logprob_TV = logits_TV.to(at::kDouble).log_softmax(1);
      for (int64_t position = sample.prompt_length; position < length; ++position) {
        if (sample.loss_mask[static_cast<std::size_t>(position - sample.prompt_length)] == 0)
          continue;
        sum -= logprob_TV[position - 2][sample.tokens[static_cast<std::size_t>(position)]]
                   .item<double>();
        ++count;
      }
    }
  }
  return sum / count;
}

class DraftTraining : public ::testing::TestWithParam<const char*> {};

TEST_P(DraftTraining, LossIsTheMeanOverTokensThatTrain) {
  const auto network = layered(GetParam(), "float64");
  const std::vector<Group> groups = layer_groups();
  const double expected = slow_draft_loss(*network, groups);
  Trainer trainer(*network, with_draft_loss(0.1), kClock);
  const TrainReport report = trainer.train(make_train_batch(groups, {}));
  EXPECT_NEAR(report.steps.at(0).metrics.at("train/mtp_loss"), expected, 1e-9);
}

/// float64, and sums in another order.
constexpr double kOtherOrder = 1e-8;

TEST_P(DraftTraining, LossAndGradientAreThoseOfAllTokensHoweverSamplesArePacked) {
  const TrainBatch batch = make_train_batch(layer_groups(), {});  // of 6, 3, 6 and 3 predictions
  const double expected = slow_draft_loss(*layered(GetParam(), "float64"), layer_groups());
  const int64_t trunk =
      layered(GetParam(), "float64", model::DraftLayers::kCarried)->weights().num_elements();
  for (const algo::Reduction reduction :
       {algo::Reduction::kPerRollout, algo::Reduction::kPerToken}) {
    const double denominator = reduction == algo::Reduction::kPerToken ? 18 : 4;
    Tensor whole;
    const auto expect_same = [&](const Tensor& grad_N, double loss, const std::string& how) {
      EXPECT_NEAR(loss / denominator, expected, 1e-9) << how;
      const Tensor own = grad_N.narrow(0, trunk, grad_N.size(0) - trunk);
      if (!whole.defined()) whole = own.clone();
      const double size = whole.abs().max().item<double>();
      ASSERT_GT(size, 0);
      EXPECT_LT((own - whole).abs().max().item<double>(), kOtherOrder * size) << how;
    };
    TrainConfig config = with_draft_loss(0.1);
    config.reduction = reduction;
    config.batching.use_dynamic_batch_size = false;
    for (const int64_t samples : {4, 3, 2, 1}) {
      config.batching.micro_batch_size = samples;
      const auto network = layered(GetParam(), "float64");
      Trainer trainer(*network, config, kClock);
      const algo::MetricSums sums = trainer.accumulate_gradients(batch);
      expect_same(network->weights().grad(), sums.at("mtp_loss"),
                  "in micro-batches of " + std::to_string(samples));
    }
    // Two ranks, of one and of three samples.
    std::vector<BatchShare> shares(2);
    for (std::size_t rank = 0; rank < 2; ++rank) {
      BatchShare& share = shares[rank];
      for (int64_t i = rank == 0 ? 0 : 1; i < (rank == 0 ? 1 : 4); ++i) {
        share.batch.samples.push_back(batch.samples[static_cast<std::size_t>(i)]);
        share.batch_indices.push_back(i);
      }
      StepShare& step = share.steps.emplace_back();
      step.micro_batches.emplace_back(share.batch.samples.size());
      std::iota(step.micro_batches[0].begin(), step.micro_batches[0].end(), 0);
      step.num_executions = 4;
      step.denominator = denominator;
      step.num_micro_batches = 2;
      step.num_predictions = 18;
    }
    Tensor sum_N;
    double loss = 0;
    for (const BatchShare& share : shares) {
      const auto network = layered(GetParam(), "float64");
      Trainer trainer(*network, config, kClock);
      loss += trainer.accumulate_gradients(share).at("mtp_loss");
      const Tensor own_N = network->weights().grad().clone();
      sum_N = sum_N.defined() ? sum_N + own_N : own_N;
    }
    expect_same(sum_N, loss, "on two ranks");
  }
}

TEST_P(DraftTraining, ThePolicysGradientIsTheOneWithoutItToTheBit) {
  const TrainBatch batch = make_train_batch(layer_groups(), {});
  const auto plain = layered(GetParam(), "float32", model::DraftLayers::kCarried),
             small = layered(GetParam(), "float32"), large = layered(GetParam(), "float32");
  TrainConfig config = with_draft_loss(0.1);
  config.draft_loss_scale.reset();
  Trainer without(*plain, config, kClock), with_small(*small, with_draft_loss(0.1), kClock),
      with_large(*large, with_draft_loss(0.2), kClock);
  without.accumulate_gradients(batch);
  with_small.accumulate_gradients(batch);
  with_large.accumulate_gradients(batch);
  const int64_t trunk = plain->weights().num_elements();
  const auto layer_of = [&](model::Network& network) {
    const Tensor& grad_N = network.weights().grad();
    return grad_N.narrow(0, trunk, grad_N.size(0) - trunk);
  };
  EXPECT_GT(plain->weights().grad().abs().max().item<double>(), 0);
  EXPECT_TRUE(small->weights().grad().narrow(0, 0, trunk).equal(plain->weights().grad()));
  EXPECT_TRUE(large->weights().grad().narrow(0, 0, trunk).equal(plain->weights().grad()));
  const double size = layer_of(*small).abs().max().item<double>();
  EXPECT_GT(size, 0);
  EXPECT_LT((layer_of(*large) - 2 * layer_of(*small)).abs().max().item<double>(), 1e-5 * size);
}

TEST_P(DraftTraining, TeachesTheLayerAlso) {
  const auto network = layered(GetParam(), "float32");
  // All rewards are alike: nothing but the layer learns.
  const TrainBatch batch = make_train_batch(layer_groups(/*best_reward=*/0), {});
  TrainConfig config = with_draft_loss(1);
  config.lr.lr = 3e-3;
  Trainer trainer(*network, config, kClock);
  const auto step = [&] { return trainer.train(batch).steps.at(0).metrics.at("train/mtp_loss"); };
  const double first = step();
  double last = first;
  for (int i = 0; i < 40; ++i) last = step();
  EXPECT_LT(last, 0.7 * first);
}

INSTANTIATE_TEST_SUITE_P(Models, DraftTraining,
                         ::testing::Values("deepseek_v3", "glm4_moe", "mimo", "qwen3_next"),
                         [](const auto& info) { return std::string(info.param); });

TEST(DraftTrainingOfTwoTokens, CountsNothing) {
  const auto network = layered("mimo", "float32");
  std::vector<Group> groups = layer_groups();
  for (Group& group : groups) {
    for (Sample& sample : group.samples) {
      sample.tokens.resize(2);
      sample.prompt_length = 1;
      sample.loss_mask.resize(1);
    }
  }
  Trainer trainer(*network, with_draft_loss(0.1), kClock);
  const TrainReport report = trainer.train(make_train_batch(groups, {}));
  EXPECT_EQ(report.steps.at(0).metrics.at("train/mtp_loss"), 0);
}

}  // namespace
}  // namespace slime::train
