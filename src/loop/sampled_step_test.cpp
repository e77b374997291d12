#include "loop/sampled_step.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace slime::loop {
namespace {

Sample sampled_sample(int64_t ordinal, int64_t group, int64_t index_in_group) {
  Sample sample;
  sample.ordinal = ordinal;
  sample.group = group;
  sample.index_in_group = index_in_group;
  sample.tokens = {5, 6, 7, 8};
  sample.prompt_length = 2;
  sample.log_probs = {-0.5F, -1.25F};
  sample.versions = {{3, 2}};
  sample.status = Status::kTruncated;
  sample.reward = 0.5;
  return sample;
}

TEST(SampledStep, ComesBackFromACheckpointAsItWas) {
  SampledStep sampled{.step = 7, .collected = {}};
  sampled.collected.generated_tokens = 4;
  sampled.collected.metrics["rollout/mine"] = 0.25;
  sampled.collected.untrained = report::UntrainedTokens{{"lost", 3}};
  sampled.collected.masks_are_lost = true;
  sampled.collected.groups = {
      {.ordinal = 9, .samples = {sampled_sample(18, 9, 0), sampled_sample(19, 9, 1)}}};
  const SampledStep read = sampled_step_from_json(to_json(sampled), "run.json");
  EXPECT_EQ(read.step, 7);
  EXPECT_EQ(read.collected.generated_tokens, 4);
  EXPECT_EQ(read.collected.untrained, sampled.collected.untrained);
  EXPECT_TRUE(read.collected.masks_are_lost);
  EXPECT_EQ(read.collected.metrics, sampled.collected.metrics);
  ASSERT_EQ(read.collected.groups.size(), 1u);
  const Group& group = read.collected.groups.front();
  EXPECT_EQ(group.ordinal, 9);
  ASSERT_EQ(group.samples.size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(slime::to_json(group.samples[i]),
              slime::to_json(sampled.collected.groups[0].samples[i]));
  }
}

TEST(SampledStep, ThatIsDamagedIsAConfigurationErrorWithItsPlace) {
  const json::object damaged{{"step", 7}, {"groups", "none"}, {"generated_tokens", 0}};
  try {
    sampled_step_from_json(damaged, "run.json");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_TRUE(std::string_view(error.what()).starts_with("run.json: sampled_step.groups"))
        << error.what();
  }
}

}  // namespace
}  // namespace slime::loop
