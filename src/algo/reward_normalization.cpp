#include "algo/reward_normalization.h"

#include <cmath>
#include <unordered_map>
#include <utility>

#include "core/error.h"

namespace slime::algo {
namespace {

struct Execution {
  double count = 0, sum = 0;
  double mean() const { return sum / count; }
};

struct GroupOfExecutions {
  std::unordered_map<int64_t, std::size_t> place;  // by execution id
  std::vector<Execution> executions;               // in the order of their first samples
  double mean = 0;                                 // of the executions' means
  double deviation = 0;                            // their unbiased standard deviation; 0 for one

  Execution& of(int64_t id) {
    const auto found = place.try_emplace(id, executions.size());
    if (found.second) executions.emplace_back();
    return executions[found.first->second];
  }
  double count() const { return static_cast<double>(executions.size()); }
};

void summarise(GroupOfExecutions& group) {
  for (const Execution& execution : group.executions) group.mean += execution.mean();
  group.mean /= group.count();
  if (group.executions.size() < 2) return;
  double squares = 0;
  for (const Execution& execution : group.executions) {
    const double difference = execution.mean() - group.mean;
    squares += difference * difference;
  }
  group.deviation = std::sqrt(squares / (group.count() - 1));
}

double normalized(double reward, const Execution& own, const GroupOfExecutions& group,
                  RewardNormalization how) {
  const double centred = reward - group.mean;
  if (how == RewardNormalization::kMean) return centred;
  if (how == RewardNormalization::kMeanAndStd) return centred / (group.deviation + 1e-6);
  const double count = group.count();
  if (count < 2) return centred;
  // Minus the mean of the others, (count * mean - own) / (count - 1).
  return centred + (own.mean() - group.mean) / (count - 1);
}

}  // namespace

std::vector<double> normalize_rewards(std::span<const double> rewards,
                                      std::span<const int64_t> group_ids,
                                      std::span<const int64_t> execution_ids,
                                      RewardNormalization how) {
  check(rewards.size() == group_ids.size(), "each reward has a group id");
  check(rewards.size() == execution_ids.size(), "each reward has an execution id");
  std::vector<double> result(rewards.begin(), rewards.end());
  if (how == RewardNormalization::kNone) return result;

  std::unordered_map<int64_t, GroupOfExecutions> groups;
  for (std::size_t i = 0; i < rewards.size(); ++i) {
    Execution& execution = groups[group_ids[i]].of(execution_ids[i]);
    execution.count += 1;
    execution.sum += rewards[i];
  }
  for (auto& [id, group] : groups) summarise(group);
  for (std::size_t i = 0; i < rewards.size(); ++i) {
    GroupOfExecutions& group = groups[group_ids[i]];
    result[i] = normalized(rewards[i], group.of(execution_ids[i]), group, how);
  }
  return result;
}

}  // namespace slime::algo
