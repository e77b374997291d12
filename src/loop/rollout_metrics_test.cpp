#include "loop/rollout_metrics.h"

#include <gtest/gtest.h>

#include <fstream>

#include "core/json.h"

namespace slime::loop {
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

// Golden cases of the original: tests/golden/pass_at_k.json.
TEST(PassAtK, EqualsTheGoldenCases) {
  const json::value cases = read_json_file(std::string(SLIME_SOURCE_DIR) + "/tests/golden/pass_at_k.json");
  for (const json::value& entry : cases.as_array()) {
    const std::string name(entry.at("name").as_string());
    const auto group_size = entry.at("params").at("group_size").to_number<std::size_t>();
    const json::array& rewards = entry.at("inputs").at("rewards").as_array();
    std::vector<Group> groups(rewards.size() / group_size);
    for (std::size_t i = 0; i < rewards.size(); ++i) {
      groups[i / group_size].samples.emplace_back().reward = rewards[i];
    }
    const Metrics metrics = pass_at_k(groups, "", "");
    const json::object& expected = entry.at("expected").as_object();
    EXPECT_EQ(metrics.size(), expected.size()) << name;
    for (const auto& member : expected) {
      ASSERT_TRUE(metrics.contains(std::string(member.key()))) << name;
      EXPECT_NEAR(metrics.at(std::string(member.key())), member.value().to_number<double>(), 1e-9) << name;
    }
  }
}

}  // namespace
}  // namespace slime::loop
