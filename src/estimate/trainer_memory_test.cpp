#include "estimate/trainer_memory.h"

#include <gtest/gtest.h>

namespace slime::estimate {
namespace {

constexpr int64_t kTokens = 1000;

TrainerMemory memory_with(const std::string& name, model::Recompute recompute) {
  const auto models = std::filesystem::path(SLIME_SOURCE_DIR) / "tests/fixtures/models";
  const auto network = model::load_network(models / name, model::Precision::of("float32"));
  train::TrainConfig config;
  config.recompute = recompute;
  return memory_of(rank_of(*network, model::Precision::of("float32"), config, {}, kTokens));
}

// llama's fixture: H = 72, F = 144, N = 6, K = 2, D = 12, so C = 72 and E = 120; three layers.
constexpr int64_t kHidden = 72, kWidth = 144, kAttended = 72, kHeads = 120, kLayers = 3;
constexpr int64_t kStatistics = 6;
constexpr int64_t kEnds = 6 * kHidden;

TEST(TrainerMemory, OfAPreNormBlockIsItsSumsNormsHeadsGatesAndProducts) {
  const int64_t block = 4 * kHidden + kHeads + kAttended + 3 * kWidth + kStatistics;
  EXPECT_EQ(memory_with("llama", model::Recompute::kNone).activations,
            kTokens * 4 * (kLayers * block + kEnds));
}

TEST(TrainerMemory, SelectivelyKeepsNeitherNormsNorTheProductOfGateAndUp) {
  const int64_t block = 2 * kHidden + kHeads + kAttended + 2 * kWidth + kStatistics;
  EXPECT_EQ(memory_with("llama", model::Recompute::kSelective).activations,
            kTokens * 4 * (kLayers * block + kEnds));
}

TEST(TrainerMemory, RecomputedIsTheInputsOfAllBlocksAndOneBlockWithItsGradients) {
  const int64_t block = 4 * kHidden + kHeads + kAttended + 3 * kWidth + kStatistics;
  EXPECT_EQ(memory_with("llama", model::Recompute::kFull).activations,
            kTokens * 4 * (kLayers * kHidden + block + 3 * kWidth + kEnds));
}

/// 80 parameters that four ranks share, and 40 of experts that two share (tp 2, cp 2, dp 2, ep 4).
TrainerRank shared_rank() {
  return {.dense = 80,
          .experts = 40,
          .hidden = 4,
          .vocab = 100,
          .layout = {.dp = 2, .tp = 2, .cp = 2, .ep = 4},
          .precision = {.weights = at::kBFloat16, .activations = at::kBFloat16},
          .tokens = 10};
}

TEST(TrainerMemory, OfTheOptimizerIsTheShardOfTheRanksThatShareTheParameters) {
  const TrainerMemory memory = memory_of(shared_rank());
  EXPECT_EQ(memory.weights, 2 * 120);
  EXPECT_EQ(memory.gradients, 4 * 120);
  EXPECT_EQ(memory.optimizer, 12 * 80 / 4 + 12 * 40 / 2);
  EXPECT_EQ(memory.all_logits, 4 * 10 * 100 / 2) << "a rank has half of the vocabulary";
}

TEST(TrainerMemory, ACriticHasTheSameShardOfItsOwnOptimizer) {
  TrainerRank rank = shared_rank();
  rank.copies = 1;
  rank.has_critic = true;
  const TrainerMemory memory = memory_of(rank);
  EXPECT_EQ(memory.others, memory.weights + memory.optimizer);
  EXPECT_EQ(memory.gradients, 2 * 4 * 120);
  rank.critic_optimizer_on_host = true;
  EXPECT_EQ(memory_of(rank).others, memory.weights);
}

TEST(TrainerMemory, OrderedGradientsTakeScratchWhereKernelsHaveThem) {
  TrainerRank rank = shared_rank();
  rank.tokens = 4000;
  rank.precision.device = at::kCUDA;
  rank.attention = {.heads = {32, 8, 128}, .windows = {0}};
  const int64_t without = memory_of(rank).activations;
  const auto added = [&without](const TrainerRank& of) {
    return memory_of(of).activations - without;
  };
  rank.orders_backward = true;
  // Sixteen heads of each of two ranks, 4,096 by 4,096 numbers of two bytes.
  EXPECT_EQ(added(rank), int64_t{16} * 4096 * 4096 * 2);
  rank.attention.heads.head_dim = 320;
  EXPECT_EQ(added(rank), 0) << "plain products";
  rank.attention.heads.head_dim = 128;
  rank.attention.windows = {512, 0};
  EXPECT_EQ(added(rank), int64_t{16} * 4096 * 4096 * 2);
  rank.precision.device = at::kCPU;
  EXPECT_EQ(memory_of(rank).activations, without);
}

TEST(TrainerMemory, OfAPipelinesFirstStageIsThatOfAllMicroBatchesUnderWayAndOfNoLogits) {
  TrainerRank rank = shared_rank();
  rank.blocks = {{.saved = 20}, {.saved = 20}};
  const int64_t one = memory_of(rank).activations;
  EXPECT_EQ(one, 10 * (2 * 20 * 2 / 2 + 6 * 4 * 2)) << "layers keep slices, the stream is whole";
  rank.micro_batches = 3;
  rank.has_head = false;
  EXPECT_EQ(memory_of(rank).activations, 3 * one);
  EXPECT_EQ(memory_of(rank).logits, 0);
}

}  // namespace
}  // namespace slime::estimate
