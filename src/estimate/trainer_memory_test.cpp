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

}  // namespace
}  // namespace slime::estimate
