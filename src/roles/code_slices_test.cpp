#include "roles/code_slices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/block_models_for_tests.h"

namespace slime::roles {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<std::string> problems_of(const config::RunConfig& config,
                                     const model::ModelConfig& model) {
  std::vector<std::string> problems;
  check_code_slices(config, model, problems);
  return problems;
}

config::RunConfig engines_of(int64_t num_ranks) {
  config::RunConfig config;
  config.rollout_precision = "fp8";
  config.num_engine_workers = 1;
  config.rollout_num_gpus_per_engine = num_ranks;
  return config;
}

TEST(CodeSlices, OfWholeBlocksAreTaken) {
  for (const char* name : golden_models::kBlockModels) {
    EXPECT_TRUE(problems_of(engines_of(2), golden_models::in_whole_blocks(name)).empty()) << name;
    EXPECT_TRUE(problems_of(engines_of(1), golden_models::in_whole_blocks(name)).empty()) << name;
  }
}

TEST(CodeSlices, ThatCutBlocksAreToldWithWhatWorks) {
  // 512 rows of queries in four parts are blocks; 256 of keys are not.
  const model::ModelConfig model = golden_models::in_whole_blocks("qwen3");
  const std::vector<std::string> problems = problems_of(engines_of(4), model);
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_THAT(problems[0],
              AllOf(HasSubstr("--rollout-num-gpus-per-engine 4 with --rollout-precision fp8: "
                              "model.layers.0.self_attn.k_proj.weight: rows 0 to 64 of 256 cut"),
                    HasSubstr("use 1 or 2")));
  config::RunConfig plain = engines_of(4);
  plain.rollout_precision = "auto";
  EXPECT_TRUE(problems_of(plain, model).empty());
}

TEST(CodeSlices, ALayoutThatTheModelCannotHaveIsNotTheirs) {
  EXPECT_TRUE(problems_of(engines_of(3), golden_models::in_whole_blocks("qwen3")).empty());
}

TEST(CodeSlices, OfRanksThatTrainCountWhereTheirEnginesHoldTheModelOtherwise) {
  const model::ModelConfig model = golden_models::in_whole_blocks("qwen3");
  config::RunConfig config = engines_of(1);
  config.num_engine_workers = 0;
  config.actor_num_gpus_per_node = 4;
  config.rollout_num_gpus = 4;
  config.colocate = true;
  ASSERT_TRUE(config.has_engine_on_each_rank());
  EXPECT_TRUE(problems_of(config, model).empty()) << "they hold it whole";
  config.tensor_model_parallel_size = 2;
  EXPECT_TRUE(problems_of(config, model).empty()) << "in whole blocks";
  config.tensor_model_parallel_size = 4;
  const std::vector<std::string> problems = problems_of(config, model);
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_THAT(problems[0], AllOf(HasSubstr("rank 0 that trains"), HasSubstr("rows 0 to 64 of 256"),
                                 HasSubstr("engines apart")));
  // Engines elsewhere get codes of whole tensors.
  config.colocate = false;
  config.num_engine_workers = 1;
  EXPECT_TRUE(problems_of(config, model).empty());
}

}  // namespace
}  // namespace slime::roles
