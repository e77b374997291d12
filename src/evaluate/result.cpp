#include "evaluate/result.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/error.h"
#include "core/executions.h"
#include "report/rollout_metrics.h"

namespace slime::evaluate {
namespace {

json::object to_json(const Estimate& estimate) {
  return {{"value", estimate.value},
          {"low", estimate.interval.low},
          {"high", estimate.interval.high},
          {"interval", estimate.interval.method}};
}

std::vector<std::pair<int64_t, Estimate>> passes_of(const std::vector<PromptResult>& prompts) {
  int64_t largest = 0;
  for (const PromptResult& prompt : prompts) largest = std::max(largest, prompt.size);
  std::vector<std::pair<int64_t, Estimate>> passes;
  for (int64_t k = 1; k <= largest; k *= 2) {
    std::vector<double> values;
    for (const PromptResult& prompt : prompts)
      if (prompt.size >= k) values.push_back(report::pass_at_k(prompt.size, prompt.correct, k));
    passes.emplace_back(k, mean(values));
  }
  return passes;
}

std::string range_of(const Estimate& estimate) {
  return fmt::format("{:.4f} - {:.4f}", estimate.interval.low, estimate.interval.high);
}

}  // namespace

SetResult to_result(const std::string& name, std::span<const Group> groups,
                    const std::string& reward_key,
                    const std::function<std::string(int64_t ordinal)>& key_of) {
  SetResult set{.name = name};
  std::vector<PromptSum> sums;
  double truncated = 0, tokens = 0;
  for (const Group& group : groups) {
    PromptResult prompt{.key = key_of(group.ordinal)};
    for (const auto& execution : executions_of(group)) {
      ++prompt.size;
      prompt.correct += report::is_right(execution, reward_key) ? 1 : 0;
    }
    prompt.mean = report::mean_reward(std::span(&group, 1), reward_key);
    const auto weight = static_cast<double>(prompt.size);
    sums.push_back({.sum = prompt.mean * weight, .weight = weight});
    for (const Sample& sample : group.samples) {
      ++set.num_samples;
      set.num_failed += sample.status == Status::kFailed ? 1 : 0;
      truncated += sample.status == Status::kTruncated ? 1 : 0;
      tokens += static_cast<double>(sample.response_length());
    }
    set.prompts.push_back(std::move(prompt));
  }
  const auto count = static_cast<double>(std::max<int64_t>(set.num_samples, 1));
  set.truncated_ratio = truncated / count;
  set.mean_length = tokens / count;
  set.mean = weighted_mean(sums);
  set.mean.value = report::mean_reward(groups, reward_key);  // a run's figure, to the last bit
  set.pass_at_k = passes_of(set.prompts);
  return set;
}

json::object to_json(const SetResult& set) {
  json::object passes;
  for (const auto& [k, estimate] : set.pass_at_k) passes[std::to_string(k)] = to_json(estimate);
  json::array prompts;
  for (const PromptResult& prompt : set.prompts) {
    prompts.push_back(json::object{{"key", prompt.key},
                                   {"mean", prompt.mean},
                                   {"samples", prompt.size},
                                   {"correct", prompt.correct}});
  }
  return {{"name", set.name},
          {"num_prompts", set.prompts.size()},
          {"num_samples", set.num_samples},
          {"num_failed", set.num_failed},
          {"num_too_long", set.num_too_long},
          {"truncated_ratio", set.truncated_ratio},
          {"mean_response_length", set.mean_length},
          {"mean", to_json(set.mean)},
          {"pass_at_k", std::move(passes)},
          {"prompts", std::move(prompts)}};
}

SetResult set_from_json(const json::value& value, const std::string& where) {
  const auto refuse = [&where](const char* what) -> ConfigError {
    return ConfigError(fmt::format("{}: {}; should be what slime eval --json wrote", where, what));
  };
  const json::object* object = value.if_object();
  if (object == nullptr) throw refuse("a set is no object");
  const json::value* name = object->if_contains("name");
  const json::value* prompts = object->if_contains("prompts");
  if (name == nullptr || !name->is_string()) throw refuse("a set has no name");
  if (prompts == nullptr || !prompts->is_array()) throw refuse("a set has no prompts");
  SetResult set{.name = std::string(name->get_string())};
  for (const json::value& each : prompts->get_array()) {
    const json::object* prompt = each.if_object();
    const json::value* key = prompt != nullptr ? prompt->if_contains("key") : nullptr;
    const json::value* mean = prompt != nullptr ? prompt->if_contains("mean") : nullptr;
    if (key == nullptr || !key->is_string() || mean == nullptr || !mean->is_number())
      throw refuse("a prompt has no key and mean");
    set.prompts.push_back(
        {.key = std::string(key->get_string()), .mean = mean->to_number<double>()});
  }
  return set;
}

std::string table_of(std::span<const SetResult> sets) {
  std::size_t width = 8;
  std::set<int64_t> ks;
  for (const SetResult& set : sets) {
    width = std::max(width, set.name.size());
    for (const auto& [k, estimate] : set.pass_at_k)
      if (k > 1) ks.insert(k);
  }
  std::string text = fmt::format("{:<{}} {:>8} {:>8} {:>8}  {:<17} {:>8}", "set", width, "prompts",
                                 "samples", "mean", "95 %", "pass@1");
  for (const int64_t k : ks) text += fmt::format(" {:>9}", fmt::format("pass@{}", k));
  text += fmt::format(" {:>8} {:>10} {:>7}\n", "tokens", "truncated", "failed");
  for (const SetResult& set : sets) {
    text += fmt::format("{:<{}} {:>8} {:>8} {:>8.4f}  {:<17} {:>8.4f}", set.name, width,
                        set.prompts.size(), set.num_samples, set.mean.value, range_of(set.mean),
                        set.pass_at_k.empty() ? 0.0 : set.pass_at_k.front().second.value);
    for (const int64_t k : ks) {
      const auto found =
          std::ranges::find(set.pass_at_k, k, [](const auto& pass) { return pass.first; });
      text += found == set.pass_at_k.end() ? fmt::format(" {:>9}", "-")
                                           : fmt::format(" {:>9.4f}", found->second.value);
    }
    text += fmt::format(" {:>8.1f} {:>9.1f}% {:>7}\n", set.mean_length, set.truncated_ratio * 100,
                        set.num_failed);
  }
  return text;
}

}  // namespace slime::evaluate
