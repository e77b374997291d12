/// Engines of two ranks that draft with the model's draft layer draw the tokens of one rank without drafts.

#include <gtest/gtest.h>

#include "engine_rank_cases.h"
#include "engine_rank_threads.h"

namespace slime {
namespace {

using testing::expect_same;
using testing::expected_of;
using testing::ParallelEngine;
using testing::TestEngine;
using testing::workload;

class DraftLayerOnEngineRanks : public ::testing::TestWithParam<const char*> {};

TEST_P(DraftLayerOnEngineRanks, DrawsTheTokensOfOneRankWithoutDrafts) {
  const auto directory =
      std::filesystem::path(SLIME_SOURCE_DIR) / "tests/fixtures/drafts" / GetParam();
  const model::Precision precision = model::Precision::of("float32");
  TestEngine plain(model::load_network(directory, precision), {});
  const auto requests = workload(plain.network().config().vocab_size);
  const auto expected = expected_of(plain, requests);
  const testing::MakeSlices slices = [&](const comm::Mesh& mesh) {
    return model::load_network(directory, precision, mesh, model::DraftLayers::kComputed);
  };
  engine::EngineConfig config;
  config.max_prefill_tokens = 30;
  config.drafts = {.most = 3, .always = true, .texts = true, .layer = true};
  ParallelEngine bench(slices, 2, config);
  expect_same(bench.generate(requests), expected);
  EXPECT_GT(bench.engine().load()->drafts.num_drafted, 0);
}

INSTANTIATE_TEST_SUITE_P(Models, DraftLayerOnEngineRanks,
                         ::testing::Values("deepseek_v3", "glm4_moe", "mimo"),
                         golden_models::name_of);

}  // namespace
}  // namespace slime
