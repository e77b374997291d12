#include "report/rollout_metrics.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <ranges>
#include <utility>

#include "core/executions.h"
#include "core/repetition.h"
#include "report/failure_reasons.h"

namespace slime::report {
namespace {

/// Of the executions that have one.
std::vector<double> rewards_of(const Group& group, const std::string& reward_key) {
  std::vector<double> rewards;
  for (const auto& execution : executions_of(group)) {
    if (const auto reward = execution_reward(execution, reward_key)) rewards.push_back(*reward);
  }
  return rewards;
}

bool has_failed(const std::vector<const Sample*>& execution) {
  return std::ranges::any_of(
      execution, [](const Sample* sample) { return sample->status == Status::kFailed; });
}

/// Names of reward records are a function's, which may make up any number of them.
constexpr std::size_t kMostRewardParts = 64;

/// A number that a user's function set and that nothing but metrics reads.
double number_of(const json::object& fields, std::string_view name) {
  const json::value* value = fields.if_contains(name);
  return value != nullptr && value->is_number() ? value->to_number<double>() : 0.0;
}

}  // namespace

bool is_right(const std::vector<const Sample*>& execution, const std::string& reward_key) {
  return !has_failed(execution) && execution_reward(execution, reward_key) == 1.0;
}

double pass_at_k(int64_t size, int64_t correct, int64_t k) {
  if (size - correct < k) return 1;
  double all_wrong = 1;  // C(size - correct, k) / C(size, k)
  for (int64_t j = size - correct + 1; j <= size; ++j)
    all_wrong *= 1.0 - static_cast<double>(k) / static_cast<double>(j);
  return 1 - all_wrong;
}

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
  double repetitive = 0;
  double constrained = 0, response_tokens = 0;
  double accept_rates = 0, accept_lengths = 0, drafting = 0;
  DraftCounts drafts;
  for (const Group& group : groups) {
    for (const Sample& sample : group.samples) {
      constrained += static_cast<double>(std::ranges::count(sample.constrained, 1));
      response_tokens += static_cast<double>(sample.effective_response_length());
      repetitive += is_repetitive(sample.response) ? 1 : 0;
      lengths.push_back(static_cast<double>(sample.effective_response_length()));
      truncated += sample.status == Status::kTruncated ? 1 : 0;
      cached += static_cast<double>(sample.cached_tokens);
      accept_rates += sample.drafts.accept_rate();
      accept_lengths += sample.drafts.accept_length();
      drafting += sample.drafts.num_steps > 0 ? 1 : 0;
      drafts += sample.drafts;
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
  metrics[prefix + "repetition_frac"] = repetitive / n;
  if (constrained > 0) metrics[prefix + "constrained_tokens"] = constrained / response_tokens;
  metrics[prefix + "avg_cached_tokens_per_sample"] = cached / n;
  if (drafting > 0) {
    metrics[prefix + "spec_accept_rate"] = accept_rates / drafting;
    metrics[prefix + "spec_accept_length"] = accept_lengths / drafting;
  }
  if (drafts.num_compared > 0) metrics[prefix + "verify_redrawn"] = drafts.redrawn_share();
  if (replayed_tokens > 0)
    metrics[prefix + "top_p_kept_vocab_per_token"] = kept_ids / replayed_tokens;
  if (prompt_tokens > 0) metrics[prefix + "prefix_cache_hit_rate"] = cached / prompt_tokens;
  return metrics;
}

Metrics multi_turn_metrics(std::span<const Group> groups, int64_t longest) {
  Metrics metrics;
  std::vector<double> raw, own, rounds;
  double clipped = 0;
  for (const Group& group : groups) {
    for (const Sample& sample : group.samples) {
      raw.push_back(static_cast<double>(sample.response_length()));
      own.push_back(static_cast<double>(sample.effective_response_length()));
      clipped += sample.response_length() >= longest ? 1 : 0;
      if (const json::value* round = sample.metadata.if_contains("round_number");
          round != nullptr && round->is_number())
        rounds.push_back(round->to_number<double>());
    }
  }
  if (raw.empty()) return metrics;
  const std::string prefix = "multi_turn/raw_response_length/response_length_";
  metrics[prefix + "clip_ratio"] = clipped / static_cast<double>(raw.size());
  for (const auto& [name, values] :
       {std::pair{prefix, &raw},
        std::pair{std::string("multi_turn/wo_obs_response_length/response_length_"), &own},
        std::pair{std::string("multi_turn/multi_turn_metric/round_number_"), &rounds}}) {
    if (values->empty()) continue;
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

Metrics reward_part_metrics(std::span<const Group> groups, const std::string& reward_key,
                            const std::string& prefix) {
  struct Mean {
    double sum = 0, count = 0;
  };
  std::map<std::string, Mean> means;
  for (const Group& group : groups) {
    for (const Sample& sample : group.samples) {
      const json::object* reward = sample.reward.if_object();
      if (reward == nullptr) continue;
      for (const auto& [name, value] : *reward) {
        if (name == reward_key || !(value.is_number() || value.is_bool())) continue;
        if (means.size() >= kMostRewardParts && !means.contains(std::string(name))) continue;
        Mean& mean = means[std::string(name)];
        mean.sum += value.is_bool() ? (value.get_bool() ? 1 : 0) : value.to_number<double>();
        ++mean.count;
      }
    }
  }
  Metrics metrics;
  for (const auto& [name, mean] : means) metrics[prefix + "reward/" + name] = mean.sum / mean.count;
  return metrics;
}

Metrics rollout_speed(std::span<const Group> groups, double seconds, int64_t num_devices) {
  Metrics metrics{{"perf/rollout_time", seconds}};
  if (seconds <= 0) return metrics;
  double tokens = 0, effective = 0, longest = 0, longest_effective = 0, longest_elsewhere = 0;
  std::vector<double> elsewhere, generating, rates;
  for (const Group& group : groups) {
    for (const Sample& sample : group.samples) {
      const auto length = static_cast<double>(sample.response_length());
      const auto own = static_cast<double>(sample.effective_response_length());
      const double away = number_of(sample.user_fields, "non_generation_time");
      tokens += length;
      effective += own;
      if (length > longest) longest_elsewhere = away;
      longest = std::max(longest, length);
      longest_effective = std::max(longest_effective, own);
      elsewhere.push_back(away);
      if (sample.generation_seconds <= 0) continue;
      generating.push_back(sample.generation_seconds);
      rates.push_back(own / sample.generation_seconds);
    }
  }
  const double device_seconds = seconds * static_cast<double>(std::max<int64_t>(num_devices, 1));
  metrics["perf/tokens_per_gpu_per_sec"] = tokens / device_seconds;
  metrics["perf/effective_tokens_per_gpu_per_sec"] = effective / device_seconds;
  metrics["perf/longest_sample_tokens_per_sec"] = longest / seconds;
  metrics["perf/longest_effective_sample_tokens_per_sec"] = longest_effective / seconds;
  if (std::ranges::any_of(elsewhere, [](double away) { return away > 0; })) {
    add_statistics(metrics, "perf/non_generation_time", std::move(elsewhere));
    metrics["perf/longest_sample_non_generation_time"] = longest_elsewhere;
    if (longest_elsewhere < seconds) {
      metrics["perf/longest_sample_tokens_per_sec_without_non_generation"] =
          longest / (seconds - longest_elsewhere);
    }
  }
  add_statistics(metrics, "perf/request/e2e_latency", std::move(generating));
  add_statistics(metrics, "perf/decode/throughput", std::move(rates));
  return metrics;
}

Metrics pass_at_k(std::span<const Group> groups, const std::string& reward_key,
                  const std::string& prefix) {
  Metrics metrics;
  if (groups.empty()) return metrics;
  struct Tally {
    int64_t size = 0, correct = 0;  // executions of a group
  };
  std::vector<Tally> tallies;
  int64_t largest = 0;
  for (const Group& group : groups) {
    Tally& tally = tallies.emplace_back();
    for (const auto& execution : executions_of(group)) {
      ++tally.size;
      tally.correct += is_right(execution, reward_key) ? 1 : 0;
    }
    largest = std::max(largest, tally.size);
  }
  if (largest <= 1) return metrics;
  for (int64_t k = 1; k <= largest; k *= 2) {
    double total = 0;
    int64_t num_groups = 0;
    for (const auto& [size, correct] : tallies) {
      if (size < k) continue;
      ++num_groups;
      total += pass_at_k(size, correct, k);
    }
    metrics[fmt::format("{}pass@{}", prefix, k)] = total / static_cast<double>(num_groups);
  }
  return metrics;
}

double mean_reward(std::span<const Group> groups, const std::string& reward_key) {
  double sum = 0;
  int64_t count = 0;
  for (const Group& group : groups) {
    for (const auto& execution : executions_of(group)) {
      const auto reward = execution_reward(execution, reward_key);
      if (!reward && !has_failed(execution)) continue;
      ++count;
      // A part that failed counts 0 among those of its execution.
      const auto failed = static_cast<double>(std::ranges::count_if(
          execution, [](const Sample* sample) { return sample->status == Status::kFailed; }));
      const auto parts = static_cast<double>(execution.size());
      if (reward) sum += *reward * (parts - failed) / parts;
    }
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

}  // namespace slime::report
