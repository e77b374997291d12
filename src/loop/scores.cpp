#include "loop/scores.h"

#include <algorithm>

#include "core/json.h"
#include "core/reward_number.h"
#include "reward/remote.h"

namespace slime::loop {
namespace {

constexpr std::chrono::milliseconds kRemoteCallTimeout{120'000};

bool asks_server(const config::RunConfig& config) {
  return config.rm_type.ends_with("remote_rm") || (config.use_opd && config.opd_type == "sglang");
}

/// The column in what ask_teacher returned; null for another reward.
const json::value* teacher_scores(const json::value& reward) {
  const json::object* record = reward.if_object();
  return record == nullptr ? nullptr : record->if_contains("teacher_log_probs");
}

}  // namespace

std::chrono::duration<double> reward_deadline(const config::RunConfig& config) {
  if (!asks_server(config)) return std::chrono::duration<double>(config.reward_timeout_seconds);
  return static_cast<double>(config.remote_rm_attempts) *
         (kRemoteCallTimeout + std::chrono::seconds(31));
}

int num_reward_threads(const config::RunConfig& config) {
  constexpr int64_t kConnections = 64;
  return static_cast<int>(asks_server(config) ? std::max(config.reward_threads, kConnections)
                                              : config.reward_threads);
}

void take_teacher_scores(std::vector<Group>& groups) {
  for (Group& group : groups) {
    for (Sample& sample : group.samples) {
      const json::value* scores = teacher_scores(sample.reward);
      if (scores == nullptr) continue;
      sample.teacher_log_probs = json::value_to<std::vector<float>>(*scores);
      sample.reward = 0.0;
    }
  }
}

reward::RewardConfig reward_config(const config::RunConfig& config) {
  return {.seed = static_cast<uint64_t>(config.seed),
          .url = config.rm_url,
          .attempts = config.remote_rm_attempts,
          .call_timeout = kRemoteCallTimeout,
          .grading = config.no_rm_strict ? reward::Grading::kOriginal : reward::Grading::kStrict};
}

std::optional<std::string> reward_problem(const json::value& reward,
                                          const std::string& reward_key) {
  if (teacher_scores(reward) != nullptr) return std::nullopt;
  const Expected<double> number = reward_number(reward, reward_key);
  if (number) return std::nullopt;
  return number.error().message;
}

rollout::ScoreFn make_score(const config::RunConfig& config) {
  const reward::RewardConfig rewards = reward_config(config);
  if (!config.use_opd) {
    if (config.rm_type.empty()) return nullptr;
    return reward::make_reward(config.rm_type, rewards);
  }
  // Pure distillation: every reward is 0 unless a rule is asked for.
  const reward::RewardFn rule = reward::make_reward(config.rm_type, rewards);
  const reward::RemoteReward teacher{.url = config.rm_url,
                                     .num_attempts = config.remote_rm_attempts,
                                     .timeout = kRemoteCallTimeout,
                                     .seed = rewards.seed};
  const bool asks_teacher = config.opd_type == "sglang";
  const bool has_rule = !config.rm_type.empty();
  return [=, temperature = config.rollout_temperature](
             const Sample& sample, const std::stop_token& stop) -> Expected<json::value> {
    if (has_rule || sample.metadata.contains("rm_type")) return rule(sample, stop);
    if (asks_teacher) return reward::ask_teacher(teacher, temperature, sample, stop);
    return json::value(0.0);
  };
}

}  // namespace slime::loop
