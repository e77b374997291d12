#include "train/train_batch.h"

#include <fmt/format.h>

#include <unordered_map>
#include <unordered_set>

#include "core/error.h"
#include "core/version_runs.h"

namespace slime::train {
namespace {

/// A normal bad day: the engine or the judge failed, and nobody may learn from a reward that was
/// never given.
bool has_no_verdict(const Sample& sample) {
  return sample.reward.is_null() &&
         (sample.status == Status::kFailed || sample.status == Status::kAborted);
}

std::string source_name_of(const Sample& sample) {
  const auto* name = sample.metadata.if_contains("source_name");
  return name != nullptr && name->is_string() ? std::string(name->as_string()) : "unknown";
}

TrainSample to_train_sample(const Sample& sample) {
  TrainSample out;
  each_taken_field(sample, out, [](const TakenField&, const auto& from, auto& to) { to = from; });
  if (out.loss_mask.empty())
    out.loss_mask.assign(std::max<int64_t>(0, sample.response_length()), 1);
  if (sample.remove_sample || has_no_verdict(sample)) out.loss_mask.assign(out.loss_mask.size(), 0);
  out.truncated = sample.status == Status::kTruncated;
  out.source_name = source_name_of(sample);
  return out;
}

void check_lengths(const TrainSample& sample, std::vector<std::string>& problems) {
  const int64_t response = sample.total_length() - sample.prompt_length;
  const auto say = [&](const std::string& what) {
    problems.push_back(fmt::format("sample {}: {}", sample.ordinal, what));
  };
  if (sample.prompt_length < 1)
    say("has no prompt token, so nothing predicts its first response token");
  if (response < 0)
    say(fmt::format("prompt of {} tokens in {} tokens", sample.prompt_length,
                    sample.total_length()));
  if (response >= 0 && sample.response_length() != response) {
    say(fmt::format("loss mask of {} entries for {} response tokens", sample.response_length(),
                    response));
  }
  const Sample none;
  each_taken_field(none, sample, [&](const TakenField& field, const auto&, const auto& list) {
    if constexpr (requires { list.size(); }) {
      if (!field.is_per_token || list.empty() || static_cast<int64_t>(list.size()) == response)
        return;
      say(fmt::format("{} {} for {} response tokens", list.size(), field.name, response));
    }
  });
  if (const std::string problem = problem_of(sample.media, sample.total_length()); !problem.empty())
    say(problem);
  if (!sample.versions.empty() && num_tokens(sample.versions) != response) {
    say(fmt::format("weight versions of {} tokens for {} response tokens",
                    num_tokens(sample.versions), response));
  }
}

/// Explicit ids stay; the others get the smallest non-negative integers not in use, in order.
void assign_rollout_ids(std::span<const Sample* const> samples, TrainBatch& batch) {
  std::unordered_set<int64_t> used;
  for (const Sample* sample : samples) {
    if (sample->rollout_id) used.insert(*sample->rollout_id);
  }
  int64_t next = 0;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    if (!samples[i]->rollout_id) {
      while (used.contains(next)) ++next;
      used.insert(next);
    }
    batch.samples[i].rollout_id = samples[i]->rollout_id.value_or(next);
  }
}

void assign_mask_totals(TrainBatch& batch) {
  std::unordered_map<int64_t, int64_t> totals;
  for (const TrainSample& sample : batch.samples) {
    for (const uint8_t trained : sample.loss_mask) totals[sample.rollout_id] += trained;
  }
  for (TrainSample& sample : batch.samples) sample.rollout_mask_total = totals[sample.rollout_id];
}

/// Group-normalised rewards; raw ones from metadata.raw_reward where a sample has it (spec section
/// 2, item 2).
void assign_rewards(std::span<const Sample* const> samples, const TrainBatchConfig& config,
                    TrainBatch& batch, std::vector<std::string>& problems) {
  std::vector<double> rewards;
  std::vector<int64_t> groups, executions;
  std::vector<std::size_t> judged;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    if (has_no_verdict(*samples[i])) continue;
    try {
      rewards.push_back(samples[i]->reward_value(config.reward_key));
    } catch (const ConfigError& error) {
      problems.push_back(error.what());
      continue;
    }
    groups.push_back(samples[i]->group);
    executions.push_back(batch.samples[i].rollout_id);
    judged.push_back(i);
    const auto* raw = samples[i]->metadata.if_contains("raw_reward");
    batch.samples[i].raw_reward =
        raw != nullptr && raw->is_number() ? raw->to_number<double>() : rewards.back();
    if (config.overlong)
      rewards.back() += algo::overlong_penalty(*config.overlong, samples[i]->response_length());
  }
  const std::vector<double> normalized =
      algo::normalize_rewards(rewards, groups, executions, config.rewards);
  for (std::size_t j = 0; j < judged.size(); ++j) batch.samples[judged[j]].reward = normalized[j];
}

TrainBatch flatten(std::span<const Sample* const> samples, std::vector<std::string>& problems) {
  TrainBatch batch;
  for (const Sample* sample : samples) {
    batch.samples.push_back(to_train_sample(*sample));
    check_lengths(batch.samples.back(), problems);
  }
  assign_rollout_ids(samples, batch);
  assign_mask_totals(batch);
  batch.count_executions();
  return batch;
}

}  // namespace

std::vector<int64_t> TrainBatch::total_lengths() const {
  std::vector<int64_t> lengths;
  for (const TrainSample& sample : samples) lengths.push_back(sample.total_length());
  return lengths;
}

std::vector<int64_t> TrainBatch::rollout_ids() const {
  std::vector<int64_t> ids;
  for (const TrainSample& sample : samples) ids.push_back(sample.rollout_id);
  return ids;
}

void TrainBatch::count_executions() {
  std::unordered_map<int64_t, int64_t> counts;
  for (const TrainSample& sample : samples) ++counts[sample.rollout_id];
  for (TrainSample& sample : samples) sample.rollout_samples = counts[sample.rollout_id];
}

namespace {

std::vector<const Sample*> samples_of(std::span<const Group> groups) {
  std::vector<const Sample*> samples;
  for (const Group& group : groups) {
    for (const Sample& sample : group.samples) samples.push_back(&sample);
  }
  return samples;
}

}  // namespace

TrainBatch make_imitation_batch(std::span<const Group> groups) {
  std::vector<std::string> problems;
  TrainBatch batch = flatten(samples_of(groups), problems);
  if (!problems.empty()) throw ConfigError(problems);
  return batch;
}

TrainBatch make_train_batch(std::span<const Group> groups, const TrainBatchConfig& config) {
  const std::vector<const Sample*> samples = samples_of(groups);
  std::vector<std::string> problems;
  TrainBatch batch = flatten(samples, problems);
  assign_rewards(samples, config, batch, problems);
  if (!problems.empty()) throw ConfigError(problems);
  return batch;
}

namespace {

void require_trained_tokens(const TrainBatch& batch, std::vector<std::string>& problems) {
  for (const TrainSample& sample : batch.samples) {
    if (std::find(sample.loss_mask.begin(), sample.loss_mask.end(), 1) == sample.loss_mask.end()) {
      problems.push_back(fmt::format("sample {}: no token is trained", sample.ordinal));
    }
  }
}

}  // namespace

TrainBatch make_supervised_batch(std::span<const Sample> samples) {
  std::vector<const Sample*> pointers;
  for (const Sample& sample : samples) pointers.push_back(&sample);
  std::vector<std::string> problems;
  TrainBatch batch = flatten(pointers, problems);
  require_trained_tokens(batch, problems);
  if (!problems.empty()) throw ConfigError(problems);
  return batch;
}

TrainBatch make_preference_batch(std::span<const Group> groups) {
  std::vector<const Sample*> pointers;
  std::vector<std::string> problems;
  for (const Group& group : groups) {
    if (group.samples.size() != 2) {
      problems.push_back(fmt::format("prompt {}: a preference has 2 responses, not {}",
                                     group.ordinal, group.samples.size()));
    }
    for (const Sample& sample : group.samples) pointers.push_back(&sample);
  }
  TrainBatch batch = flatten(pointers, problems);
  for (TrainSample& sample : batch.samples) sample.rollout_id = sample.group;
  assign_mask_totals(batch);
  batch.count_executions();
  require_trained_tokens(batch, problems);
  if (!problems.empty()) throw ConfigError(problems);
  return batch;
}

}  // namespace slime::train
