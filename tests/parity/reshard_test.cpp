// Weights that ranks hold in parts come into networks of another layout on the same ranks: bit for bit
// those of the file.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <mutex>

#include "comm/unconnected_group.h"
#include "core/error.h"
#include "layout_cases.h"
#include "model/weight_checksums.h"
#include "sync/reshard.h"

namespace slime::parity {
namespace {

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
    const comm::Mesh engine_mesh({.tp = 2}, mesh.rank(),
                                 [&](comm::Axis, const std::vector<int>& members) {
                                   return std::make_unique<comm::UnconnectedGroup>(
                                       mesh.rank(), static_cast<int>(members.size()));
                                 });
    const auto expected = model::load_network(directory, kExact, engine_mesh);
    const auto engine = model::load_network(directory, kExact, engine_mesh);
    model::fill_with_noise(engine->weights());
    sync::Reshard(mesh, trained->weights(), engine->weights()).run();
    EXPECT_TRUE(at::equal(engine->weights().flat(), expected->weights().flat()))
        << "rank " << mesh.rank();
  });
}

TEST(Reshard, OfWeightsThatNobodyHasIsABug) {
  const std::filesystem::path directory = kModels + "qwen3";
  const auto trained = model::load_network(directory, kExact);
  const auto other = model::load_network(kModels + "qwen3_moe", kExact);
  EXPECT_THROW(sync::Reshard(comm::Mesh::single(), trained->weights(), other->weights()), BugError);
}

}  // namespace
}  // namespace slime::parity
