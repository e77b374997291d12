#include "report/rollout_metrics.h"

#include <gtest/gtest.h>

#include "core/golden_test.h"
#include "core/json.h"
#include "setup/periodic.h"

namespace slime::report {
namespace {

Group scored_group(const std::vector<double>& rewards, const std::vector<int64_t>& lengths) {
  Group group;
  for (std::size_t i = 0; i < rewards.size(); ++i) {
    Sample sample;
    sample.prompt_length = 2;
    sample.tokens.resize(static_cast<std::size_t>(2 + lengths[i]));
    sample.reward = rewards[i];
    sample.status = lengths[i] > 4 ? Status::kTruncated : Status::kCompleted;
    sample.cached_tokens = i == 0 ? 0 : 2;
    group.samples.push_back(sample);
  }
  return group;
}

TEST(RolloutMetrics, SummariseLengthsRewardsAndCacheHits) {
  const std::vector<Group> groups{scored_group({1, 0}, {1, 2}), scored_group({0, 0}, {4, 7})};
  const Metrics metrics = sample_metrics(groups, "", "rollout/");
  EXPECT_EQ(metrics.at("rollout/response_len/mean"), 3.5);
  EXPECT_EQ(metrics.at("rollout/response_len/median"), 3.0);
  EXPECT_EQ(metrics.at("rollout/response_len/max"), 7.0);
  EXPECT_EQ(metrics.at("rollout/response_len/min"), 1.0);
  EXPECT_EQ(metrics.at("rollout/zero_std/count_0.0"), 1.0);
  EXPECT_EQ(metrics.at("rollout/truncated_ratio"), 0.25);
  EXPECT_EQ(metrics.at("rollout/prefix_cache_hit_rate"), 0.5);
  EXPECT_EQ(mean_reward(groups, ""), 0.25);
}

TEST(RolloutMetrics, RedrawnTokensAreAShareOfThoseCompared) {
  std::vector<Group> groups{{.samples = std::vector<Sample>(3)}};
  for (Sample& sample : groups[0].samples) {
    sample.tokens = {1, 2};
    sample.prompt_length = 1;
  }
  EXPECT_FALSE(sample_metrics(groups, "", "rollout/").contains("rollout/verify_redrawn"));
  groups[0].samples[0].drafts = {
      .num_drafted = 9, .num_kept = 7, .num_compared = 8, .num_redrawn = 1};
  groups[0].samples[1].drafts = {
      .num_drafted = 4, .num_kept = 1, .num_compared = 2, .num_redrawn = 1};
  const Metrics metrics = sample_metrics(groups, "", "rollout/");
  EXPECT_EQ(metrics.at("rollout/verify_redrawn"), 0.2);
}

TEST(RolloutMetrics, DraftsAreMeansOverSamplesThatHaveSome) {
  std::vector<Group> groups{scored_group({1, 0, 0}, {4, 6, 1})};
  EXPECT_FALSE(sample_metrics(groups, "", "rollout/").contains("rollout/spec_accept_rate"));
  groups[0].samples[0].drafts = {.num_drafted = 4, .num_kept = 2, .num_steps = 2};
  groups[0].samples[1].drafts = {.num_drafted = 8, .num_kept = 2, .num_steps = 4};
  const Metrics metrics = sample_metrics(groups, "", "rollout/");
  EXPECT_EQ(metrics.at("rollout/spec_accept_rate"), (0.5 + 0.25) / 2);
  EXPECT_EQ(metrics.at("rollout/spec_accept_length"), (2 + 1.5) / 2);
}

Sample failed_sample(const std::string& why) {
  Sample sample;
  sample.status = Status::kFailed;
  sample.failure = why;
  return sample;
}

TEST(RolloutMetrics, AFailedSampleCountsZero) {
  std::vector<Group> groups{scored_group({1, 1}, {1, 1}), scored_group({1}, {1})};
  groups[1].samples.push_back(failed_sample("no"));
  EXPECT_EQ(mean_reward(groups, ""), 0.75);
  EXPECT_EQ(pass_at_k(groups, "", "").at("pass@1"), 0.75);
  EXPECT_EQ(num_failed(groups), 1);
}

TEST(RolloutMetrics, PartsOfRewardRecordsAreMeansOverTheSamplesThatHaveThem) {
  std::vector<Group> groups{scored_group({1, 1, 1}, {1, 1, 1})};
  groups[0].samples[0].reward = parse_json(R"({"reward": 1, "form": 0.5, "why": "x"})", "");
  groups[0].samples[1].reward = parse_json(R"({"reward": 0, "form": 0.25, "done": true})", "");
  const Metrics parts = reward_part_metrics(groups, "reward", "rollout/");
  EXPECT_EQ(parts, (Metrics{{"rollout/reward/form", 0.375}, {"rollout/reward/done", 1}}));
}

TEST(RolloutMetrics, AnExecutionThatBecameSeveralSamplesCountsOnce) {
  // Two executions: one of three samples that is right, one of one sample that is not.
  std::vector<Group> groups{scored_group({1, 1, 1, 0}, {1, 2, 3, 4})};
  for (std::size_t i = 0; i < 3; ++i) groups[0].samples[i].rollout_id = 9;
  EXPECT_EQ(mean_reward(groups, ""), 0.5);
  const Metrics passed = pass_at_k(groups, "", "");
  EXPECT_EQ(passed.at("pass@1"), 0.5);
  EXPECT_EQ(passed.at("pass@2"), 1.0);
  EXPECT_FALSE(passed.contains("pass@4"));
  groups[0].samples[3].reward = 1.0;
  EXPECT_EQ(sample_metrics(groups, "", "").at("zero_std/count_1.0"), 1.0);
  groups[0].samples[1] = failed_sample("no");
  groups[0].samples[1].rollout_id = 9;
  EXPECT_EQ(pass_at_k(groups, "", "").at("pass@1"), 0.5) << "a part of it failed";
  EXPECT_DOUBLE_EQ(mean_reward(groups, ""), (2.0 / 3 + 1) / 2);
}

TEST(RolloutMetrics, RatesPerGpuAreDividedByTheGpusThatGenerate) {
  std::vector<Group> groups{scored_group({1, 0}, {60, 20})};
  groups[0].samples[0].generation_seconds = 3;
  groups[0].samples[0].user_fields["non_generation_time"] = 2.0;
  const Metrics metrics = rollout_speed(groups, 5, 4);
  EXPECT_EQ(metrics.at("perf/tokens_per_gpu_per_sec"), 80.0 / 5 / 4);
  EXPECT_EQ(metrics.at("perf/longest_sample_tokens_per_sec"), 60.0 / 5);
  EXPECT_EQ(metrics.at("perf/longest_sample_tokens_per_sec_without_non_generation"), 60.0 / 3);
  EXPECT_EQ(metrics.at("perf/non_generation_time/mean"), 1.0);
  EXPECT_EQ(metrics.at("perf/request/e2e_latency/max"), 3.0);
  EXPECT_EQ(metrics.at("perf/decode/throughput/mean"), 20.0) << "of the one that was timed";
}

TEST(RolloutMetrics, WithoutFailedSamplesGroupsMayDifferInSize) {
  std::vector<Group> groups{scored_group({1, 0}, {1, 1}), scored_group({1}, {1}), Group{}};
  groups[1].samples.push_back(failed_sample("no"));
  groups[2].samples.push_back(failed_sample("no"));
  const std::vector<Group> rest = without_failed(groups);
  ASSERT_EQ(rest.size(), 2u);
  EXPECT_EQ(rest[1].samples.size(), 1u);
  EXPECT_NEAR(mean_reward(rest, ""), 2.0 / 3, 1e-15);
  const Metrics metrics = pass_at_k(rest, "", "");
  EXPECT_EQ(metrics.at("pass@1"), 0.75);
  EXPECT_EQ(metrics.at("pass@2"), 1.0) << "of the one group that has two";
}

TEST(RolloutMetrics, ReasonsThatDifferInNumbersAreOne) {
  std::vector<Group> groups(2);
  for (const char* why : {"the prompt has 913 tokens", "reward: no answer", "disk"})
    groups[0].samples.push_back(failed_sample(why));
  groups[1].samples.push_back(failed_sample("the prompt has 77 tokens"));
  EXPECT_EQ(reasons_of_failures(groups, 1), "2x the prompt has 913 tokens; 2x other reasons");
  EXPECT_EQ(reasons_of_failures(groups, 3),
            "2x the prompt has 913 tokens; 1x disk; 1x reward: no answer");
}

GOLDEN_TEST(PassAtK, "pass_at_k.json") {
  const auto group_size = c.at("params").at("group_size").to_number<std::size_t>();
  const json::array& rewards = c.at("inputs").at("rewards").as_array();
  std::vector<Group> groups(rewards.size() / group_size);
  for (std::size_t i = 0; i < rewards.size(); ++i) {
    groups[i / group_size].samples.emplace_back().reward = rewards[i];
  }
  const Metrics metrics = pass_at_k(groups, "", "");
  const json::object& expected = c.at("expected").as_object();
  EXPECT_EQ(metrics.size(), expected.size());
  for (const auto& member : expected) {
    ASSERT_TRUE(metrics.contains(std::string(member.key())));
    EXPECT_NEAR(metrics.at(std::string(member.key())), member.value().to_number<double>(), 1e-9);
  }
}

std::optional<int64_t> optional_integer(const json::object& object, std::string_view key) {
  const json::value& value = object.at(key);
  return value.is_null() ? std::nullopt : std::optional(value.to_number<int64_t>());
}

GOLDEN_TEST(MiscMetrics, "misc_metrics.json") {
  const json::object& params = c.at("params").as_object();
  const json::object& inputs = c.at("inputs").as_object();
  const json::object& expected = c.at("expected").as_object();
  const json::string& function = params.at("function").as_string();
  if (function == "compute_statistics") {
    Metrics metrics;
    add_statistics(metrics, "x", json::value_to<std::vector<double>>(inputs.at("values")));
    EXPECT_EQ(metrics.size(), expected.size());
    for (const auto& [name, value] : expected) {
      EXPECT_EQ(metrics.at("x/" + std::string(name)), value.to_number<double>());
    }
    return;
  }
  const int64_t rollout_id = inputs.at("rollout_id").to_number<int64_t>();
  if (function == "compute_rollout_step") {
    const int64_t samples = params.at("rollout_batch_size").to_number<int64_t>() *
                            params.at("n_samples_per_prompt").to_number<int64_t>();
    EXPECT_EQ(setup::plotted_step(rollout_id, params.at("wandb_always_use_train_step").as_bool(),
                                  samples, params.at("global_batch_size").to_number<int64_t>()),
              expected.at("step").to_number<int64_t>());
    return;
  }
  setup::Period period{.interval = optional_integer(params, "interval"),
                       .epoch = {},
                       .num_rollouts = optional_integer(params, "num_rollout")};
  if (const auto rollouts = optional_integer(params, "num_rollout_per_epoch"))
    period.epoch = setup::EpochRows{.in_epoch = *rollouts, .in_rollout = 1};
  EXPECT_EQ(setup::is_due(rollout_id, period), expected.at("run").as_bool());
}

}  // namespace
}  // namespace slime::report
