#include "algo/reward_normalization.h"

#include <cmath>
#include <unordered_map>

#include "core/error.h"

namespace slime::algo {

std::vector<double> normalize_rewards(std::span<const double> rewards,
                                      std::span<const int64_t> group_ids, RewardNormalization how) {
  check(rewards.size() == group_ids.size(), "each reward has a group id");
  std::vector<double> result(rewards.begin(), rewards.end());
  if (how == RewardNormalization::kNone) return result;

  struct Sums {
    double count = 0, sum = 0, squares = 0;
  };
  std::unordered_map<int64_t, Sums> groups;
  for (std::size_t i = 0; i < rewards.size(); ++i) {
    Sums& group = groups[group_ids[i]];
    group.count += 1;
    group.sum += rewards[i];
  }
  for (std::size_t i = 0; i < rewards.size(); ++i) {
    Sums& group = groups[group_ids[i]];
    result[i] -= group.sum / group.count;
    group.squares += result[i] * result[i];
  }
  if (how == RewardNormalization::kMean) return result;
  if (how == RewardNormalization::kLeaveOneOut) {
    for (std::size_t i = 0; i < rewards.size(); ++i) {
      const double count = groups[group_ids[i]].count;
      if (count > 1) result[i] *= count / (count - 1);
    }
    return result;
  }
  for (std::size_t i = 0; i < rewards.size(); ++i) {
    const Sums& group = groups[group_ids[i]];
    const double deviation = group.count > 1 ? std::sqrt(group.squares / (group.count - 1)) : 0.0;
    result[i] /= deviation + 1e-6;
  }
  return result;
}

}  // namespace slime::algo
