#include "evaluate/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/random.h"

namespace slime::evaluate {
namespace {

TEST(EvaluationStatistics, RightAndWrongHaveWilsonsInterval) {
  // Newcombe (1998), table I: 81 of 263, and 0 of 20.
  std::vector<double> values(263, 0.0);
  for (std::size_t i = 0; i < 81; ++i) values[i] = 1;
  const Estimate share = mean(values);
  EXPECT_EQ(share.interval.method, "wilson");
  EXPECT_NEAR(share.value, 81.0 / 263, 1e-12);
  EXPECT_NEAR(share.interval.low, 0.2553, 5e-5);
  EXPECT_NEAR(share.interval.high, 0.3662, 5e-5);
  const Estimate none = mean(std::vector<double>(20, 0.0));
  EXPECT_EQ(none.interval.low, 0);
  EXPECT_NEAR(none.interval.high, 0.1611, 5e-5);
}

TEST(EvaluationStatistics, OtherValuesAreResampledOverPrompts) {
  std::vector<PromptSum> prompts;
  for (uint64_t i = 0; i < 400; ++i)
    prompts.push_back({.sum = 4 * (0.3 + normal(1, 2, i)), .weight = 4});
  const Estimate estimate = weighted_mean(prompts);
  EXPECT_EQ(estimate.interval.method, "bootstrap");
  double squares = 0;
  for (const PromptSum& each : prompts) squares += std::pow(each.sum / 4 - estimate.value, 2);
  const double half = 1.96 * std::sqrt(squares / 400) / std::sqrt(400.0);
  EXPECT_NEAR(estimate.value - estimate.interval.low, half, 0.05 * half);
  EXPECT_NEAR(estimate.interval.high - estimate.value, half, 0.05 * half);
  EXPECT_EQ(weighted_mean(prompts).interval.low, estimate.interval.low) << "the same draws";
}

TEST(EvaluationStatistics, PromptsCountByTheirExecutions) {
  const std::vector<PromptSum> prompts{{.sum = 1, .weight = 4}, {.sum = 2, .weight = 2}};
  EXPECT_DOUBLE_EQ(weighted_mean(prompts).value, 0.5);
  EXPECT_EQ(weighted_mean({}).value, 0);
}

TEST(EvaluationStatistics, DifferencesThatAreAllZeroHaveNoWidth) {
  const std::vector<PromptSum> same(5, PromptSum{.sum = 0});
  EXPECT_EQ(bootstrap_mean(same).interval.low, 0);
  EXPECT_EQ(bootstrap_mean(same).interval.high, 0);
}

}  // namespace
}  // namespace slime::evaluate
