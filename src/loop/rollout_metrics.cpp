#include "loop/rollout_metrics.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <ranges>
#include <utility>

#include "loop/failure_reasons.h"

namespace slime::loop {
namespace {

std::vector<double> rewards_of(const Group& group, const std::string& reward_key) {
  std::vector<double> rewards;
  for (const Sample& sample : group.samples) {
    if (!sample.reward.is_null()) rewards.push_back(sample.reward_value(reward_key));
  }
  return rewards;
}

}  // namespace

void add_statistics(Metrics& metrics, const std::string& name, std::vector<double> values) {
  if (values.empty()) return;
  std::ranges::sort(values);
  const std::size_t n = values.size();
  metrics[name + "/mean"] =
      std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(n);
  metrics[name + "/median"] = n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
  metrics[name + "/max"] = values.back();
  metrics[name + "/min"] = values.front();
}

Metrics sample_metrics(std::span<const Group> groups, const std::string& reward_key,
                       const std::string& prefix) {
  Metrics metrics;
  std::vector<double> lengths;
  double truncated = 0;
  double cached = 0;
  double prompt_tokens = 0;
  double kept_ids = 0;
  double replayed_tokens = 0;
  for (const Group& group : groups) {
    for (const Sample& sample : group.samples) {
      lengths.push_back(static_cast<double>(sample.effective_response_length()));
      truncated += sample.status == Status::kTruncated ? 1 : 0;
      cached += static_cast<double>(sample.cached_tokens);
      if (!sample.top_p_offsets.empty() && !sample.remove_sample) {
        kept_ids += static_cast<double>(sample.top_p_ids.size());
        replayed_tokens += static_cast<double>(sample.effective_response_length());
      }
      prompt_tokens += static_cast<double>(
          sample.engine_prompt_tokens > 0 ? sample.engine_prompt_tokens : sample.prompt_length);
    }
    const std::vector<double> rewards = rewards_of(group, reward_key);
    if (!rewards.empty() &&
        std::ranges::all_of(rewards, [&](double reward) { return reward == rewards[0]; })) {
      ++metrics[fmt::format("{}zero_std/count_{:.1f}", prefix, rewards[0])];
    }
  }
  if (lengths.empty()) return metrics;
  const double n = static_cast<double>(lengths.size());
  add_statistics(metrics, prefix + "response_len", std::move(lengths));
  metrics[prefix + "truncated_ratio"] = truncated / n;
  metrics[prefix + "avg_cached_tokens_per_sample"] = cached / n;
  if (replayed_tokens > 0)
    metrics[prefix + "top_p_kept_vocab_per_token"] = kept_ids / replayed_tokens;
  if (prompt_tokens > 0) metrics[prefix + "prefix_cache_hit_rate"] = cached / prompt_tokens;
  return metrics;
}

Metrics multi_turn_metrics(std::span<const Group> groups, int64_t longest) {
  Metrics metrics;
  std::vector<double> raw, own;
  double clipped = 0;
  for (const Group& group : groups) {
    for (const Sample& sample : group.samples) {
      raw.push_back(static_cast<double>(sample.response_length()));
      own.push_back(static_cast<double>(sample.effective_response_length()));
      clipped += sample.response_length() >= longest ? 1 : 0;
    }
  }
  if (raw.empty()) return metrics;
  const std::string prefix = "multi_turn/raw_response_length/response_length_";
  metrics[prefix + "clip_ratio"] = clipped / static_cast<double>(raw.size());
  for (const auto& [name, values] :
       {std::pair{prefix, &raw},
        std::pair{std::string("multi_turn/wo_obs_response_length/response_length_"), &own}}) {
    metrics[name + "mean"] =
        std::accumulate(values->begin(), values->end(), 0.0) / static_cast<double>(values->size());
    metrics[name + "max"] = std::ranges::max(*values);
    metrics[name + "min"] = std::ranges::min(*values);
  }
  return metrics;
}

Metrics category_metrics(std::span<const Group> groups, const std::string& field) {
  std::map<std::string, double> counts;
  double total = 0;
  for (const Group& group : groups) {
    for (const Sample& sample : group.samples) {
      const json::object* reward = sample.reward.if_object();
      const json::value* value = reward == nullptr ? nullptr : reward->if_contains(field);
      ++total;
      if (value == nullptr || value->is_null()) continue;
      ++counts[value->is_string() ? std::string(value->get_string()) : json_text(*value)];
    }
  }
  Metrics metrics;
  for (const auto& [value, count] : counts) metrics["rollout/error_cat/" + value] = count / total;
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

Metrics pass_at_k(std::span<const Group> groups, const std::string& reward_key,
                  const std::string& prefix) {
  Metrics metrics;
  if (groups.empty()) return metrics;
  const auto size_of = [](const Group& group) {
    return static_cast<int64_t>(group.samples.size());
  };
  int64_t largest = 0;
  for (const Group& group : groups) largest = std::max(largest, size_of(group));
  if (largest <= 1) return metrics;
  for (int64_t k = 1; k <= largest; k *= 2) {
    double total = 0;
    int64_t num_groups = 0;
    for (const Group& group : groups) {
      const int64_t size = size_of(group);
      if (size < k) continue;
      ++num_groups;
      const std::vector<double> rewards = rewards_of(group, reward_key);
      const auto correct = static_cast<int64_t>(std::ranges::count(rewards, 1.0));
      double all_wrong = 1;  // C(g - c, k) / C(g, k)
      for (int64_t j = size - correct + 1; j <= size; ++j) {
        all_wrong *= 1.0 - static_cast<double>(k) / static_cast<double>(j);
      }
      total += size - correct < k ? 1.0 : 1.0 - all_wrong;
    }
    metrics[fmt::format("{}pass@{}", prefix, k)] = total / static_cast<double>(num_groups);
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
    count += std::ranges::count(group.samples, Status::kFailed, &Sample::status);
  }
  return count == 0 ? 0 : sum / static_cast<double>(count);
}

std::vector<Group> without_failed(std::vector<Group> groups) {
  for (Group& group : groups) {
    std::erase_if(group.samples,
                  [](const Sample& sample) { return sample.status == Status::kFailed; });
  }
  std::erase_if(groups, [](const Group& group) { return group.samples.empty(); });
  return groups;
}

int64_t num_failed(std::span<const Group> groups) {
  int64_t count = 0;
  for (const Group& group : groups)
    count += std::ranges::count(group.samples, Status::kFailed, &Sample::status);
  return count;
}

std::string reasons_of_failures(std::span<const Group> groups, std::size_t limit) {
  FailureReasons reasons;
  for (const Group& group : groups) {
    for (const Sample& sample : group.samples)
      if (sample.status == Status::kFailed) reasons.add(sample.failure);
  }
  std::vector<std::string> parts;
  int64_t num_others = 0;
  for (const FailureReason& reason : reasons.by_frequency()) {
    if (parts.size() < limit) {
      parts.push_back(fmt::format("{}x {}", reason.count, reason.first));
    } else {
      num_others += reason.count;
    }
  }
  if (num_others > 0) parts.push_back(fmt::format("{}x other reasons", num_others));
  return fmt::format("{}", fmt::join(parts, "; "));
}

}  // namespace slime::loop
