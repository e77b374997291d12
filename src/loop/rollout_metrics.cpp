#include "loop/rollout_metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace slime::loop {
namespace {

void add_statistics(Metrics& metrics, const std::string& name, std::vector<double> values) {
  if (values.empty()) return;
  std::ranges::sort(values);
  const std::size_t n = values.size();
  metrics[name + "/mean"] = std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(n);
  metrics[name + "/median"] = n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
  metrics[name + "/max"] = values.back();
  metrics[name + "/min"] = values.front();
}

std::vector<double> rewards_of(const Group& group, const std::string& reward_key) {
  std::vector<double> rewards;
  for (const Sample& sample : group.samples) {
    if (!sample.reward.is_null()) rewards.push_back(sample.reward_value(reward_key));
  }
  return rewards;
}

}  // namespace

Metrics sample_metrics(std::span<const Group> groups, const std::string& reward_key, const std::string& prefix) {
  Metrics metrics;
  std::vector<double> lengths;
  double truncated = 0;
  double cached = 0;
  double prompt_tokens = 0;
  for (const Group& group : groups) {
    for (const Sample& sample : group.samples) {
      lengths.push_back(static_cast<double>(sample.effective_response_length()));
      truncated += sample.status == Status::kTruncated ? 1 : 0;
      cached += static_cast<double>(sample.cached_tokens);
      prompt_tokens += static_cast<double>(sample.prompt_length);
    }
    const std::vector<double> rewards = rewards_of(group, reward_key);
    if (!rewards.empty() && std::ranges::all_of(rewards, [&](double reward) { return reward == rewards[0]; })) {
      ++metrics[fmt::format("{}zero_std/count_{:.1f}", prefix, rewards[0])];
    }
  }
  if (lengths.empty()) return metrics;
  const double n = static_cast<double>(lengths.size());
  add_statistics(metrics, prefix + "response_len", std::move(lengths));
  metrics[prefix + "truncated_ratio"] = truncated / n;
  metrics[prefix + "avg_cached_tokens_per_sample"] = cached / n;
  if (prompt_tokens > 0) metrics[prefix + "prefix_cache_hit_rate"] = cached / prompt_tokens;
  return metrics;
}

Metrics rollout_speed(std::span<const Group> groups, double seconds) {
  Metrics metrics{{"perf/rollout_time", seconds}};
  if (seconds <= 0) return metrics;
  double tokens = 0;
  double effective = 0;
  double longest = 0;
  for (const Group& group : groups) {
    for (const Sample& sample : group.samples) {
      tokens += static_cast<double>(sample.response_length());
      effective += static_cast<double>(sample.effective_response_length());
      longest = std::max(longest, static_cast<double>(sample.response_length()));
    }
  }
  metrics["perf/tokens_per_gpu_per_sec"] = tokens / seconds;
  metrics["perf/effective_tokens_per_gpu_per_sec"] = effective / seconds;
  metrics["perf/longest_sample_tokens_per_sec"] = longest / seconds;
  return metrics;
}

Metrics pass_at_k(std::span<const Group> groups, const std::string& reward_key, const std::string& prefix) {
  Metrics metrics;
  if (groups.empty()) return metrics;
  const auto size = static_cast<int64_t>(groups[0].samples.size());
  if (size <= 1) return metrics;
  for (int64_t k = 1; k <= size; k *= 2) {
    double total = 0;
    for (const Group& group : groups) {
      const std::vector<double> rewards = rewards_of(group, reward_key);
      const auto correct = static_cast<int64_t>(std::ranges::count(rewards, 1.0));
      double all_wrong = 1;  // C(g - c, k) / C(g, k)
      for (int64_t j = size - correct + 1; j <= size; ++j) {
        all_wrong *= 1.0 - static_cast<double>(k) / static_cast<double>(j);
      }
      total += size - correct < k ? 1.0 : 1.0 - all_wrong;
    }
    metrics[fmt::format("{}pass@{}", prefix, k)] = total / static_cast<double>(groups.size());
  }
  return metrics;
}

double mean_reward(std::span<const Group> groups, const std::string& reward_key) {
  double sum = 0;
  int64_t count = 0;
  for (const Group& group : groups) {
    for (const double reward : rewards_of(group, reward_key)) {
      sum += reward;
      ++count;
    }
  }
  return count == 0 ? 0 : sum / static_cast<double>(count);
}

}  // namespace slime::loop
