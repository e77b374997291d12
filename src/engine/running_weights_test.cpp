#include "engine/running_weights.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>

#include "comm/mesh.h"
#include "model/adapter_config.h"
#include "model/adapters.h"
#include "model/network.h"

namespace slime::engine {
namespace {

TEST(RunningWeights, BesideAdaptersThereIsNoSecondBuffer) {
  const auto directory = std::filesystem::path(SLIME_SOURCE_DIR) / "tests/fixtures/models/qwen3";
  const model::ModelConfig config = model::read_model_config(directory);
  const model::Precision codes{.weights = at::kBFloat16,
                               .activations = at::kFloat,
                               .matrices = kernels::MatrixFormat::kFp8Blocks};
  const auto running = model::make_blank_network(config, codes);
  EXPECT_TRUE(RunningWeights(*running, comm::Mesh::single(), true).stages());
  EXPECT_FALSE(RunningWeights(*running, comm::Mesh::single(), false).stages());

  model::add_adapters(*running,
                      model::form_of({.rank = 4, .alpha = 8, .targets = {"all-linear"}}, config));
  RunningWeights weights(*running, comm::Mesh::single(), true);
  EXPECT_FALSE(weights.stages()) << "whoever brings an adapter waits for its copy";
  const auto fresh = model::with_another_adapter(*running, codes);
  const Expected<FreshWeights> staged = weights.stage(*fresh);
  ASSERT_TRUE(staged.has_value()) << staged.error().message;
  EXPECT_TRUE(staged->flat_N.is_alias_of(fresh->trained().flat()));
  EXPECT_FALSE(weights.stages());
}

}  // namespace
}  // namespace slime::engine
