// Weights that ranks hold in parts come into networks of another layout on the same ranks: bit for bit
// those of the file.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <mutex>
#include <vector>

#include "comm/unconnected_group.h"
#include "core/error.h"
#include "fixture_models.h"
#include "layout_cases.h"
#include "model/weight_checksums.h"
#include "sync/reshard.h"

namespace slime::parity {
namespace {

/// For asking what a rank of an engine holds, where nobody computes.
comm::Mesh unconnected(const ParallelLayout& layout, int rank) {
  return {layout, rank, [rank](comm::Axis, const std::vector<int>& members) {
            const auto own = std::ranges::find(members, rank);
            return std::make_unique<comm::UnconnectedGroup>(static_cast<int>(own - members.begin()),
                                                            static_cast<int>(members.size()));
          }};
}

/// Into networks that hold the whole model, on every rank.
void reshard_into_whole(const std::string& model, const ParallelLayout& layout) {
  SCOPED_TRACE(name_of(layout));
  const std::filesystem::path directory = kModels + model;
  const WeightChecksums expected =
      model::checksums_of(model::load_network(directory, kExact)->weights());
  std::mutex mutex;
  on_mesh(layout, [&](const comm::Mesh& mesh) {
    const auto trained = model::load_network(directory, kExact, mesh);
    const auto engine = model::load_network(directory, kExact);
    const sync::Reshard reshard(mesh, trained->weights(), engine->weights());
    for (int update = 0; update < 2; ++update) {
      model::fill_with_noise(engine->weights());
      reshard.run();
      const std::lock_guard lock(mutex);
      EXPECT_EQ(model::checksums_of(engine->weights()), expected) << "rank " << mesh.rank();
      EXPECT_GT(reshard.bytes_received(), 0);
      EXPECT_LT(reshard.bytes_received(), engine->weights().flat().nbytes());
    }
  });
}

TEST(Reshard, BringsSlicesStagesAndExpertsTogetherOnEveryRank) {
  reshard_into_whole("qwen3", {.tp = 2, .sequence_parallel = true});
  reshard_into_whole("qwen3", {.pp = 2, .first_layers = 1});
  reshard_into_whole("qwen3", {.dp = 2, .tp = 2, .pp = 2, .first_layers = 1});
  reshard_into_whole("qwen2", {.tp = 2, .cp = 2});
  reshard_into_whole("qwen3_moe", {.dp = 2, .tp = 2, .ep = 2, .etp = 2});
  reshard_into_whole("qwen3_moe", {.dp = 4, .ep = 4});
}

TEST(Reshard, GoesFromOneSlicingToAnother) {
  const std::filesystem::path directory = kModels + "qwen3";
  on_mesh({.pp = 2, .first_layers = 1}, [&](const comm::Mesh& mesh) {
    const auto trained = model::load_network(directory, kExact, mesh);
    // An engine of two ranks: half of each tensor lies on each rank, of which one has it whole.
    const comm::Mesh engine_mesh = unconnected({.tp = 2}, mesh.rank());
    const auto expected = model::load_network(directory, kExact, engine_mesh);
    const auto engine = model::load_network(directory, kExact, engine_mesh);
    model::fill_with_noise(engine->weights());
    sync::Reshard(mesh, trained->weights(), engine->weights()).run();
    EXPECT_TRUE(at::equal(engine->weights().flat(), expected->weights().flat()))
        << "rank " << mesh.rank();
  });
}

/// Whether the model can be divided so.
bool fits(const model::ModelConfig& model, const ParallelLayout& layout) {
  try {
    for (int rank = 0; rank < layout.world_size(); ++rank)
      model::make_blank_network(model, {.device = at::kMeta}, unconnected(layout, rank));
    return true;
  } catch (const ConfigError&) {
    return false;
  }
}

class ReshardOfModel : public ::testing::TestWithParam<const char*> {};

/// From each way of dividing it for training that it allows to each way of dividing it for an engine:
/// tied embeddings, biases, norms of queries and keys, experts and their selection biases, latents.
TEST_P(ReshardOfModel, BringsEachTensorIntoEnginesOfOneTwoAndFourRanks) {
  const std::filesystem::path directory = golden_models::directory(GetParam());
  const model::ModelConfig model = model::read_model_config(directory);
  int tried = 0;
  for (const ParallelLayout& layout :
       std::vector<ParallelLayout>{{.dp = 4},
                                   {.dp = 2, .tp = 2},
                                   {.tp = 4},
                                   {.dp = 2, .pp = 2, .first_layers = 1},
                                   {.tp = 2, .pp = 2, .first_layers = 1},
                                   {.pp = 2, .cp = 2, .last_layers = 1},
                                   {.dp = 2, .pp = 2, .chunks = 2},
                                   {.dp = 4, .ep = 4},
                                   {.dp = 2, .tp = 2, .ep = 2, .etp = 2},
                                   {.dp = 2, .tp = 2, .ep = 4},
                                   {.tp = 2, .pp = 2, .ep = 2, .first_layers = 1}}) {
    SCOPED_TRACE(name_of(layout));
    if (!fits(model, layout)) continue;
    for (const int size : {1, 2, 4}) {
      const ParallelLayout of_engine = comm::engine_layout(size);
      if (!fits(model, of_engine)) continue;
      ++tried;
      on_mesh(layout, [&](const comm::Mesh& mesh) {
        const comm::Mesh engine_mesh = unconnected(of_engine, mesh.rank() % size);
        const auto trained = model::load_network(directory, kExact, mesh);
        const auto expected = model::load_network(directory, kExact, engine_mesh);
        const auto engine = model::make_blank_network(model, kExact, engine_mesh);
        model::fill_with_noise(engine->weights());
        sync::Reshard(mesh, trained->weights(), engine->weights()).run();
        for (const model::NamedWeight& weight : engine->weights().tensors())
          EXPECT_TRUE(at::equal(model::Weights::view(engine->weights().flat(), weight),
                                model::Weights::view(expected->weights().flat(), weight)))
              << weight.name << " of rank " << mesh.rank() << " in an engine of " << size;
        EXPECT_TRUE(
            at::equal(engine->weights().flat_constants(), expected->weights().flat_constants()))
            << "constants of rank " << mesh.rank() << " in an engine of " << size;
      });
    }
  }
  EXPECT_GT(tried, 0);
}

INSTANTIATE_TEST_SUITE_P(Models, ReshardOfModel, ::testing::ValuesIn(golden_models::all()),
                         golden_models::name_of);

TEST(Reshard, OfWeightsThatNobodyHasIsABug) {
  const std::filesystem::path directory = kModels + "qwen3";
  const auto trained = model::load_network(directory, kExact);
  const auto other = model::load_network(kModels + "qwen3_moe", kExact);
  EXPECT_THROW(sync::Reshard(comm::Mesh::single(), trained->weights(), other->weights()), BugError);
}

}  // namespace
}  // namespace slime::parity
