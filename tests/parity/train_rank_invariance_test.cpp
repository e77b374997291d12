// Loss, gradients and training do not depend on the number of data-parallel ranks. Ranks are
// threads here, each with a network of its own, connected as processes are.

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <thread>

#include "core/clock.h"
#include "rank_threads.h"
#include "train/checkpoint.h"
#include "train/shards.h"
#include "train_cases.h"

namespace slime::parity {
namespace {

using namespace train;

std::unique_ptr<model::Network> load(const char* dtype) {
  return model::load_network(kModels + "qwen3", model::Precision::of(dtype));
}

/// How the step is cut. max_tokens 0: micro-batches of a fixed number of samples.
struct RankCut {
  int ranks = 1;
  int64_t micro_batch_size = 1;
  int64_t max_tokens = 0;
  bool share = false;
  bool balance = false;
};

void apply(const RankCut& cut, TrainConfig& config) {
  config.packing = {cut.share, 1};
  config.batching.dp = cut.ranks;
  config.batching.micro_batch_size = cut.micro_batch_size;
  config.batching.use_dynamic_batch_size = cut.max_tokens > 0;
  config.batching.max_tokens_per_gpu = cut.max_tokens;
  config.batching.balance_data = cut.balance;
}

OtherNetworks others_of(const TrainConfig& config, const char* dtype) {
  OtherNetworks others;
  if (needs_reference(config)) others.reference = load(dtype);
  if (config.critic) others.critic = load(dtype);
  return others;
}

/// Sums and gradients of the batch as one training step, the latter brought together again.
Outcome gradients(const TrainBatch& batch, TrainConfig config, const RankCut& cut) {
  apply(cut, config);
  Outcome outcome;
  const SystemClock clock;
  on_ranks(cut.ranks, [&](const comm::Mesh& mesh) {
    const auto network = load("float64");
    Trainer trainer(*network, config, clock, others_of(config, "float64"), mesh);
    const BatchShare share = share_from_frame(to_frame(trainer.divide(batch).at(mesh.rank())));
    const algo::MetricSums sums = trainer.accumulate_gradients(share);
    mesh.dp().all_gather_(network->weights().grad(),
                          trainer.optimizer().reduction().parts().front().shards, "gradients");
    if (mesh.rank() == mesh.dp().size() - 1) outcome = {sums, network->weights().grad().clone()};
  });
  return outcome;
}

TrainConfig grpo_config(int64_t executions) {
  TrainConfig config = parity::grpo_config();
  config.batching.global_batch_size = executions;
  config.lr = {.lr = 1e-3, .style = DecayStyle::kConstant};
  return config;
}

const std::vector<RankCut> kCuts{
    {.ranks = 2},
    {.ranks = 2, .max_tokens = 40, .share = true},
    {.ranks = 2, .micro_batch_size = 3, .share = true, .balance = true},
    {.ranks = 4, .max_tokens = 60, .balance = true},
    {.ranks = 4, .max_tokens = 60, .share = true}};

void expect_rank_invariant(const TrainBatch& batch, const TrainConfig& config) {
  const Outcome plain = gradients(batch, config, {});
  for (const RankCut& cut : kCuts) {
    SCOPED_TRACE(::testing::Message()
                 << cut.ranks << " ranks, micro-batch " << cut.micro_batch_size << ", tokens "
                 << cut.max_tokens << ", share " << cut.share << ", balance " << cut.balance);
    expect_same(gradients(batch, config, cut), plain, 1e-12);
  }
}

TEST(RankInvariance, GrpoDoesNotDependOnTheNumberOfRanks) {
  expect_rank_invariant(make_train_batch(made_up_groups(3, 4, 384), {}), grpo_config(12));
}

TEST(RankInvariance, NeitherDoTheMeanOverTokensAndWhitening) {
  TrainConfig config = grpo_config(12);
  config.reduction = algo::Reduction::kPerToken;
  config.normalize_advantages = true;
  expect_rank_invariant(make_train_batch(made_up_groups(3, 4, 384), {}), config);
}

TEST(RankInvariance, NorDoesTheOrderOfTheSamples) {
  TrainBatch batch = make_train_batch(made_up_groups(3, 4, 384), {});
  const TrainConfig config = grpo_config(12);
  const Outcome plain = gradients(batch, config, {});
  std::reverse(batch.samples.begin(), batch.samples.end());
  const Outcome reversed = gradients(batch, config, {.ranks = 4, .max_tokens = 60, .share = true});
  const double size = plain.grad.abs().max().item<double>();
  EXPECT_LT((reversed.grad - plain.grad).abs().max().item<double>(), 1e-12 * size);
}

struct Trained {
  std::vector<TrainReport> reports;
  Tensor weights;
};

/// Three rollout steps, as every rank sees them: all have to agree.
Trained train_on_ranks(const TrainBatch& batch, TrainConfig config, const RankCut& cut) {
  apply(cut, config);
  std::vector<Trained> of_rank(cut.ranks);
  const SystemClock clock;
  on_ranks(cut.ranks, [&](const comm::Mesh& mesh) {
    const auto network = load("float64");
    Trainer trainer(*network, config, clock, others_of(config, "float64"), mesh);
    Trained& own = of_rank[mesh.rank()];
    for (int step = 0; step < 3; ++step)
      own.reports.push_back(trainer.train(trainer.divide(batch)[mesh.rank()]));
    own.weights = network->weights().flat().clone();
  });
  for (const Trained& other : of_rank) {
    EXPECT_TRUE(at::equal(other.weights, of_rank[0].weights));
    for (std::size_t i = 0; i < other.reports.size(); ++i) {
      EXPECT_EQ(other.reports[i].rollout, of_rank[0].reports[i].rollout);
      for (std::size_t s = 0; s < other.reports[i].steps.size(); ++s)
        EXPECT_EQ(other.reports[i].steps[s].metrics, of_rank[0].reports[i].steps[s].metrics);
    }
  }
  return of_rank[0];
}

void expect_same_training(const TrainBatch& batch, const TrainConfig& config, double tolerance) {
  const Trained one = train_on_ranks(batch, config, {.max_tokens = 60});
  const Trained two = train_on_ranks(batch, config, {.ranks = 2, .max_tokens = 60, .share = true});
  EXPECT_LT((one.weights - two.weights).abs().max().item<double>(), tolerance);
  for (std::size_t i = 0; i < one.reports.size(); ++i) {
    EXPECT_EQ(one.reports[i].num_tokens, two.reports[i].num_tokens);
    ASSERT_EQ(one.reports[i].rollout.size(), two.reports[i].rollout.size());
    for (const auto& [name, value] : one.reports[i].rollout)
      EXPECT_NEAR(two.reports[i].rollout.at(name), value, tolerance) << name;
    ASSERT_EQ(one.reports[i].steps.size(), two.reports[i].steps.size());
    for (std::size_t s = 0; s < one.reports[i].steps.size(); ++s) {
      EXPECT_EQ(one.reports[i].steps[s].skipped, two.reports[i].steps[s].skipped);
      for (const auto& [name, value] : one.reports[i].steps[s].metrics)
        EXPECT_NEAR(two.reports[i].steps[s].metrics.at(name), value, tolerance) << name;
    }
  }
}

// Adam divides a gradient by its own size, so that a rounding error in one that is nearly zero is
// as large as the step: the weights agree to less than the gradients do.
constexpr double kAfterAdam = 1e-7;

TEST(RankInvariance, TwoRanksTrainAsOneDoes) {
  expect_same_training(make_train_batch(made_up_groups(3, 4, 384), {}), grpo_config(6), kAfterAdam);
}

TEST(RankInvariance, TwoRanksTrainACriticAsOneDoes) {
  TrainConfig config = grpo_config(12);
  config.advantage = algo::Gae{};
  config.critic = CriticConfig{};
  config.critic->lr = config.lr;
  config.policy.kl_loss.reset();
  expect_same_training(make_train_batch(made_up_groups(3, 4, 384), {}), config, kAfterAdam);
}

TEST(RankInvariance, ARankWithoutSamplesJoinsEveryCollective) {
  TrainConfig config = grpo_config(1);
  config.objective = Objective::kPreference;
  const TrainBatch one_pair = make_preference_batch(made_up_groups(1, 2, 384));
  expect_same_training(one_pair, config, kAfterAdam);
}

/// A folder that is gone with the test.
struct Scratch {
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("slime_ranks_" + std::to_string(::getpid()));
  Scratch() { std::filesystem::remove_all(path); }
  ~Scratch() { std::filesystem::remove_all(path); }
};

/// Weights of bfloat16, so that master weights are buffers of their own, computed in float32 on
/// every processor: two steps and a checkpoint when there is none, two more steps otherwise.
Tensor half_a_run(int num_ranks, const std::filesystem::path& root, const TrainBatch& batch) {
  TrainConfig config = grpo_config(12);
  config.policy.kl_loss.reset();
  apply({.ranks = num_ranks, .max_tokens = 60, .share = true}, config);
  const auto ignore = [](const std::string&) {};
  const auto found = find_checkpoint(root, ignore);
  Tensor weights;
  const SystemClock clock;
  on_ranks(num_ranks, [&](const comm::Mesh& mesh) {
    const auto network = model::load_network(found ? found->directory.string() : kModels + "qwen3",
                                             model::Precision{at::kBFloat16, at::kFloat});
    Trainer trainer(*network, config, clock, {}, mesh);
    if (found) restore_trainer(*found, trainer, 0, ignore);
    for (int step = 0; step < 2; ++step) trainer.train(trainer.divide(batch)[mesh.rank()]);
    if (mesh.rank() == 0) {
      if (!found) save_checkpoint({.root = root}, 2, trainer, {});
      weights = network->weights().flat().clone();
    } else if (!found) {
      join_save(trainer, true);
    }
  });
  return weights.to(at::kDouble);
}

TEST(RankInvariance, ACheckpointIsTheSameForEveryNumberOfRanks) {
  const Scratch scratch;
  const TrainBatch batch = make_train_batch(made_up_groups(3, 4, 384), {});
  half_a_run(2, scratch.path, batch);
  const Tensor two = half_a_run(2, scratch.path, batch);
  EXPECT_TRUE(at::equal(half_a_run(2, scratch.path, batch), two));
  for (const int other : {1, 3}) {
    // A learning rate of 0.001 moves each weight by that; moments that were lost would move it
    // otherwise. Roundings of bfloat16 differ now and then.
    const Tensor difference = (half_a_run(other, scratch.path, batch) - two).abs();
    EXPECT_LT(difference.mean().item<double>(), 1e-6);
  }
}

TEST(RankInvariance, ARankThatIsGoneIsAnErrorAtTheOthers) {
  struct Gone {};
  std::string message;
  const auto body = [&](const comm::Mesh& mesh) {
    const Tensor x_N = at::ones({1000});
    const auto shards = shards_of(1000, 2);
    mesh.dp().all_gather_(x_N, shards, "weights");
    if (mesh.rank() == 1) throw Gone();
    try {
      mesh.dp().reduce_scatter_(x_N, shards, "summing the gradients");
    } catch (const comm::GroupError& error) {
      message = error.what();
      throw Gone();
    }
  };
  EXPECT_THROW(on_ranks(2, body), Gone);
  EXPECT_TRUE(
      message.starts_with("rank 0: summing the gradients: reduce-scatter over dp (0 of 2): "))
      << message;
}

TEST(RankInvariance, ARankThatStaysAwayIsAnErrorAfterTheDeadline) {
  std::string message;
  const auto body = [&](const comm::Mesh& mesh) {
    const Tensor x_N = at::ones({1000});
    const auto shards = shards_of(1000, 2);
    if (mesh.rank() == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(600));
      throw comm::GroupError("left");
    }
    try {
      mesh.dp().all_gather_(x_N, shards, "handing out the new weights");
    } catch (const comm::GroupError& error) {
      message = error.what();
      throw;
    }
  };
  EXPECT_THROW(on_ranks(2, body, std::chrono::milliseconds(200)), comm::GroupError);
  EXPECT_TRUE(
      message.starts_with("rank 0: handing out the new weights: all-gather over dp (0 of 2): "))
      << message;
}

}  // namespace
}  // namespace slime::parity
