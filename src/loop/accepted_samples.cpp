#include "loop/accepted_samples.h"

#include <algorithm>
#include <cstdint>
#include <limits>

namespace slime::loop {
namespace {

/// Samples of one rollout execution.
struct Execution {
  double reward = -std::numeric_limits<double>::infinity();  // the highest of its samples
  std::vector<Sample*> samples;
};

/// Without samples that train nothing anyway. In the order of the group.
std::vector<Execution> executions_of(Group& group, const std::string& reward_key) {
  std::vector<Execution> executions;
  for (Sample& sample : group.samples) {
    if (sample.remove_sample || sample.reward.is_null()) continue;
    const auto same = std::ranges::find_if(executions, [&sample](const Execution& execution) {
      return sample.rollout_id && execution.samples.front()->rollout_id == sample.rollout_id;
    });
    Execution& execution = same == executions.end() ? executions.emplace_back() : *same;
    execution.samples.push_back(&sample);
    execution.reward = std::max(execution.reward, sample.reward_value(reward_key));
  }
  return executions;
}

/// Returns how many samples are left.
int64_t reject_in(Group& group, const Acceptance& acceptance) {
  std::vector<Execution> executions = executions_of(group, acceptance.reward_key);
  // Of equals the first: a choice that repeats.
  std::ranges::stable_sort(executions, std::ranges::greater(), &Execution::reward);
  int64_t num_executions = 0, num_samples = 0;
  for (const Execution& execution : executions) {
    const bool is_accepted =
        (!acceptance.min_reward || execution.reward >= *acceptance.min_reward) &&
        (!acceptance.best || num_executions < *acceptance.best);
    num_executions += is_accepted ? 1 : 0;
    num_samples += is_accepted ? static_cast<int64_t>(execution.samples.size()) : 0;
    for (Sample* sample : execution.samples) sample->remove_sample = !is_accepted;
  }
  for (Sample& sample : group.samples) sample.remove_sample |= sample.reward.is_null();
  return num_samples;
}

}  // namespace

Acceptance acceptance_of(const config::RunConfig& config) {
  return {.min_reward = config.rejection_min_reward,
          .best = config.rejection_keep_best,
          .reward_key = config.reward_key};
}

report::Metrics reject_others(std::vector<Group>& groups, const Acceptance& acceptance) {
  int64_t num_samples = 0, num_accepted = 0, num_without = 0;
  for (Group& group : groups) {
    const int64_t accepted = reject_in(group, acceptance);
    num_samples += static_cast<int64_t>(group.samples.size());
    num_accepted += accepted;
    num_without += accepted == 0 ? 1 : 0;
  }
  const auto share = [](int64_t count, int64_t of) {
    return of == 0 ? 0.0 : static_cast<double>(count) / static_cast<double>(of);
  };
  return {{"rollout/rejection/accepted_samples", static_cast<double>(num_accepted)},
          {"rollout/rejection/accepted_ratio", share(num_accepted, num_samples)},
          {"rollout/rejection/groups_without_accepted",
           share(num_without, static_cast<int64_t>(groups.size()))}};
}

}  // namespace slime::loop
