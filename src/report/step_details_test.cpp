#include "report/step_details.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

namespace slime::report {
namespace {

/// One group, a sample for each reward.
std::vector<Group> group_with(const std::vector<double>& rewards) {
  Group group{.ordinal = 0, .samples = {}};
  for (std::size_t i = 0; i < rewards.size(); ++i) {
    Sample sample;
    sample.ordinal = static_cast<int64_t>(i);
    sample.prompt_length = 1;
    sample.tokens = {1, 2, 3};
    sample.log_probs = {-0.5F, -1.0F};
    sample.reward = rewards[i];
    sample.status = Status::kCompleted;
    group.samples.push_back(sample);
  }
  return {group};
}

std::vector<int64_t> shown(const StepDetails& details) {
  std::vector<int64_t> ordinals;
  for (const ShownSample& sample : details.samples) ordinals.push_back(sample.ordinal);
  return ordinals;
}

TEST(StepDetails, ShowSamplesFromTheLowestRewardToTheHighest) {
  const auto groups = group_with({5, 1, 3, 2, 4});
  EXPECT_EQ(shown(details_of(groups, nullptr, "", 3)), (std::vector<int64_t>{1, 2, 0}));
  EXPECT_EQ(shown(details_of(groups, nullptr, "", 1)), (std::vector<int64_t>{1}));
  EXPECT_EQ(shown(details_of(groups, nullptr, "", 9)), (std::vector<int64_t>{1, 3, 2, 4, 0}));
  EXPECT_TRUE(details_of(groups, nullptr, "", 0).samples.empty());
}

TEST(StepDetails, HaveDistributionsOfWhatIsKnown) {
  const auto groups = group_with({0, 1});
  train::TrainReport report;
  report.log_probs = {{-0.25F, -1.5F}, {}};
  report.advantages = {-1, std::numeric_limits<float>::quiet_NaN()};
  const StepDetails details = details_of(groups, &report, "", 2);
  ASSERT_EQ(details.distributions.size(), 4u);
  EXPECT_EQ(details.distributions[1].name, "rollout/distribution/response_len");
  EXPECT_EQ(details.distributions[1].counts, std::vector<double>{2});
  EXPECT_EQ(details.distributions[2].min, -0.5);  // of the trainer less the engine's
  EXPECT_EQ(details.distributions[2].max, 0.25);
  EXPECT_EQ(details.distributions[3].sum, -1);
  EXPECT_EQ(details.samples[0].advantage, -1.0);
  EXPECT_FALSE(details.samples[1].advantage);
  EXPECT_EQ(details_of(groups, nullptr, "", 2).distributions.size(), 2u);
}

TEST(StepDetails, ADistributionCountsEachFiniteValueOnce) {
  std::vector<double> values(101);
  std::iota(values.begin(), values.end(), 0.0);
  values.push_back(std::nan(""));
  const auto made = distribution_of("x", values);
  ASSERT_TRUE(made);
  EXPECT_EQ(std::accumulate(made->counts.begin(), made->counts.end(), 0.0), 101);
  EXPECT_EQ(made->limits.back(), 100);
  EXPECT_EQ(made->counts.size(), made->limits.size());
  EXPECT_EQ(made->sum, 5050);
  for (std::size_t i = 0; i < made->counts.size(); ++i) EXPECT_NEAR(made->counts[i], 3.4, 1);
  EXPECT_EQ(distribution_of("x", std::vector<double>{2, 2})->counts, std::vector<double>{2});
  EXPECT_FALSE(distribution_of("x", std::vector<double>{std::nan("")}));
}

TEST(StepDetails, LongTextKeepsItsBeginningAndItsEnd) {
  EXPECT_EQ(shortened("short", 8), "short");
  EXPECT_EQ(shortened("0123456789", 4), "01 [...] 89");
  EXPECT_EQ(shortened("a\u00e9\u00e9\u00e9\u00e9z", 4), "a [...] z") << "no character is cut";
}

}  // namespace
}  // namespace slime::report
