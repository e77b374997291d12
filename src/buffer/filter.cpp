#include "buffer/filter.h"

#include <fmt/format.h>

#include <cmath>

#include "core/error.h"
#include "core/executions.h"

namespace slime::buffer {
namespace {

constexpr double kZeroDeviation = 1e-6;
constexpr std::string_view kHub = "slime.rollout.filter_hub.dynamic_sampling_filters.";

/// Unbiased, two passes; NaN for fewer than two values.
double standard_deviation(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  const double mean = sum / static_cast<double>(values.size());
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return values.size() < 2 ? std::nan("")
                           : std::sqrt(squares / static_cast<double>(values.size() - 1));
}

/// str(round(reward, 1)) of Python.
std::string rounded(const Sample& sample, const std::string& reward_key) {
  const json::value& reward =
      reward_key.empty() ? sample.reward : sample.reward.get_object().at(reward_key);
  const double value = sample.reward_value(reward_key);
  return reward.is_double() ? fmt::format("{:.1f}", value)
                            : fmt::format("{}", static_cast<int64_t>(value));
}

}  // namespace

FilterVerdict check_reward_nonzero_std(const Group& group, const std::string& reward_key) {
  check(!group.samples.empty(), "a finished group has samples");
  std::vector<double> rewards;
  for (const auto& execution : executions_of(group)) {
    if (const auto reward = execution_reward(execution, reward_key)) rewards.push_back(*reward);
  }
  if (standard_deviation(rewards) > kZeroDeviation) return {};
  return {.keep = false, .reason = "zero_std_" + rounded(group.samples.front(), reward_key)};
}

FilterVerdict check_reward_nonzero_std_with_fallback(const Group& group,
                                                     const std::string& reward_key) {
  FilterVerdict verdict = check_reward_nonzero_std(group, reward_key);
  verdict.keep_when_insufficient = true;
  return verdict;
}

FilterFn make_filter(const std::string& path) {
  if (path.empty()) return [](const Group&, const std::string&) { return FilterVerdict{}; };
  if (path == fmt::format("{}check_reward_nonzero_std", kHub)) return check_reward_nonzero_std;
  if (path == fmt::format("{}check_reward_nonzero_std_with_fallback", kHub))
    return check_reward_nonzero_std_with_fallback;
  throw ConfigError(
      fmt::format("--dynamic-sampling-filter-path {}: not a built-in filter; there are "
                  "{}check_reward_nonzero_std and "
                  "{}check_reward_nonzero_std_with_fallback",
                  path, kHub, kHub));
}

}  // namespace slime::buffer
