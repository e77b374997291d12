#include "cli/plan_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "model/block_models_for_tests.h"
#include "roles/code_slices.h"

namespace slime::cli {
namespace {

using ::testing::HasSubstr;

struct Planned {
  explicit Planned(bool colocates, const std::string& precision = "fp8") {
    config.rollout_precision = precision;
    plan.model = golden_models::in_whole_blocks("qwen3");
    plan.has_codes = config.has_codes();
    plan.colocates = colocates;
    add_run_checks(config, plan);
  }
  config::RunConfig config;
  estimate::PlanConfig plan;
};

TEST(PlanChecks, EnginesThatCutBlocksAreThoseThatTheRunRefuses) {
  for (const bool colocates : {true, false}) {
    const Planned planned(colocates);
    EXPECT_EQ(planned.plan.why_no_engine(1), "");
    EXPECT_EQ(planned.plan.why_no_engine(2), "");
    config::RunConfig run;
    run.rollout_precision = "fp8";
    run.num_engine_workers = 1;
    run.rollout_num_gpus_per_engine = 4;
    std::vector<std::string> problems;
    roles::check_code_slices(run, planned.plan.model, problems);
    ASSERT_EQ(problems.size(), 1U);
    EXPECT_EQ(planned.plan.why_no_engine(4), problems.front());
    // Three divide no heads, with codes or without.
    EXPECT_THAT(planned.plan.why_no_engine(3), HasSubstr("does not divide the model's"));
    const Planned plain(colocates, "auto");
    EXPECT_EQ(plain.plan.why_no_engine(4), "");
    EXPECT_THAT(plain.plan.why_no_engine(3), HasSubstr("does not divide the model's"));
    EXPECT_FALSE(plain.plan.why_no_layout);
  }
}

TEST(PlanChecks, TrainersThatCutBlocksAreRefusedWhereTheirEnginesAreTheirs) {
  const Planned together(/*colocates=*/true), apart(/*colocates=*/false);
  for (const int tp : {1, 2}) EXPECT_EQ(together.plan.why_no_layout({.dp = 2, .tp = tp}), "");
  EXPECT_THAT(together.plan.why_no_layout({.dp = 4, .tp = 4, .pp = 2}),
              HasSubstr("use a smaller --tensor-model-parallel-size"));
  EXPECT_EQ(apart.plan.why_no_layout({.dp = 4, .tp = 4, .pp = 2}), "");
}

}  // namespace
}  // namespace slime::cli
