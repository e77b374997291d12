#pragma once

/// Rewards of a group, made comparable: GRPO, GSPO, CISPO and REINFORCE++ with baseline learn from
/// how a response did beside its siblings (spec section 3; arXiv 2402.03300, section 4.1.2).
///
/// A group is made of executions, each of one sample or more. Baseline and deviation are those of the
/// executions' mean rewards, so an execution that was split into several samples counts once; each
/// sample is compared with them by its own reward.

#include <cstdint>
#include <span>
#include <vector>

namespace slime::algo {

enum class RewardNormalization {
  kNone,  // ppo, reinforce_plus_plus
  kMean,  // minus the mean of the group: reinforce_plus_plus_baseline, Dr.GRPO (arXiv 2503.20783)
  /// RLOO (arXiv 2402.14740, section 2.2): minus the mean of the *other* responses of the group,
  /// which keeps the baseline independent of the response: g / (g - 1) times kMean.
  kLeaveOneOut,
  kMeanAndStd,  // then divided by the sample standard deviation + 1e-6: grpo, gspo, cispo
};

/// Rewards with equal group id form a group, wherever they stand, and those of a group with equal
/// execution id an execution. {1, 0, 0, 1} of four executions gives +-0.866024 with kMeanAndStd, and
/// {1, 1, 1, 0} of executions {0, 0, 0, 1} gives {0.5, 0.5, 0.5, -0.5} with kMean. A group of equal
/// rewards gives zeros, and so does a group of one execution: there is none to compare it with.
std::vector<double> normalize_rewards(std::span<const double> rewards,
                                      std::span<const int64_t> group_ids,
                                      std::span<const int64_t> execution_ids,
                                      RewardNormalization how);

}  // namespace slime::algo
