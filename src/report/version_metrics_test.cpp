#include "report/version_metrics.h"

#include <gtest/gtest.h>

#include "core/version_runs.h"

namespace slime::report {
namespace {

Group group_of(std::vector<std::vector<VersionRun>> versions) {
  Group group;
  for (auto& runs : versions) group.samples.emplace_back().versions = std::move(runs);
  return group;
}

TEST(VersionMetrics, LagsAreOfTokensAndOfTheOldestAndNewestTokenOfEachSample) {
  // 4 tokens that lag by 2, 4 fresh ones; the tool's 10 are nobody's.
  const std::vector<Group> groups{group_of({{{5, 4}, {kNoVersion, 10}, {7, 1}}, {{7, 3}}})};
  Metrics metrics = version_metrics(groups, 7);
  EXPECT_EQ(metrics.at("rollout/weight_version/oldest"), 5);
  EXPECT_EQ(metrics.at("rollout/weight_version/newest"), 7);
  EXPECT_EQ(metrics.at("rollout/weight_version/lag_mean"), 1);
  EXPECT_EQ(metrics.at("rollout/weight_version/lag_max"), 2);
  EXPECT_EQ(metrics.at("rollout/weight_version/lag_oldest"), 1);
  EXPECT_EQ(metrics.at("rollout/weight_version/lag_newest"), 0);
  EXPECT_EQ(metrics.at("rollout/weight_version/stale_share"), 0.5);
}

TEST(VersionMetrics, AdmissionIsOfGroupsAndSharesAreOfTokens) {
  std::vector<Group> groups{group_of({{{5, 4}, {7, 1}}, {{7, 3}}}), group_of({{{6, 8}}})};
  groups[0].begun_with = 5;
  groups[1].begun_with = 6;
  Metrics metrics = version_metrics(groups, 7);
  const std::string prefix = "rollout/weight_version/";
  EXPECT_EQ(metrics.at(prefix + "lag_admission_mean"), 1.5);
  EXPECT_EQ(metrics.at(prefix + "lag_admission_max"), 2);
  EXPECT_EQ(metrics.at(prefix + "lag_oldest_max"), 2);
  EXPECT_EQ(metrics.at(prefix + "lag_newest_max"), 1);
  EXPECT_EQ(metrics.at(prefix + "lag_share/0"), 0.25);
  EXPECT_EQ(metrics.at(prefix + "lag_share/1"), 0.5);
  EXPECT_EQ(metrics.at(prefix + "lag_share/2"), 0.25);
  EXPECT_EQ(metrics.at(prefix + "behind_update_share"), 1.0 / 16) << "one token behind an update";
  const std::vector<Group> ancient{group_of({{{0, 2}}})};
  EXPECT_EQ(version_metrics(ancient, 40).at(prefix + "lag_share/8_up"), 1);
}

TEST(VersionMetrics, OnPolicyTokensHaveNoLagAndUnknownVersionsNoMetrics) {
  const std::vector<Group> fresh{group_of({{{3, 2}}, {}})};
  EXPECT_EQ(version_metrics(fresh, 3).at("rollout/weight_version/lag_max"), 0);
  const std::vector<Group> unknown{group_of({{}, {{kNoVersion, 4}}})};
  EXPECT_TRUE(version_metrics(unknown, 3).empty());
}

}  // namespace
}  // namespace slime::report
