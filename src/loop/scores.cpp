#include "loop/scores.h"

#include <algorithm>

#include "core/json.h"
#include "core/reward_number.h"
#include "reward/remote.h"

namespace slime::loop {
namespace {

constexpr double kRuleSeconds = 30;
constexpr double kCallSeconds = 120;              // of one call of a server
constexpr std::chrono::seconds kLongestWait{31};  // between two calls

std::chrono::milliseconds call_timeout(const config::RunConfig& config) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::duration<double>(config.reward_timeout_seconds.value_or(kCallSeconds)));
}

bool has_rule(const config::RunConfig& config, const Sample& sample) {
  return !config.use_opd || !config.rm_type.empty() || sample.metadata.contains("rm_type");
}

bool asks_server(const config::RunConfig& config, const Sample& sample) {
  return has_rule(config, sample) ? reward::asks_server(sample.metadata, config.rm_type)
                                  : config.opd_type == "sglang";
}

/// The column in what ask_teacher returned; null for another reward.
const json::value* teacher_scores(const json::value& reward) {
  const json::object* record = reward.if_object();
  return record == nullptr ? nullptr : record->if_contains("teacher_log_probs");
}

}  // namespace

std::chrono::duration<double> reward_deadline(const config::RunConfig& config,
                                              const Sample& sample) {
  if (!asks_server(config, sample))
    return std::chrono::duration<double>(config.reward_timeout_seconds.value_or(kRuleSeconds));
  return static_cast<double>(config.remote_rm_attempts) * (call_timeout(config) + kLongestWait);
}

int num_reward_threads(const config::RunConfig& config) {
  constexpr int64_t kConnections = 64;
  return static_cast<int>(config.rm_url.empty()
                              ? config.reward_threads
                              : std::max(config.reward_threads.get(), kConnections));
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
  reward::RewardConfig rewards{
      .seed = static_cast<uint64_t>(config.seed),
      .url = config.rm_url,
      .call_timeout = call_timeout(config),
      .grading = config.no_rm_strict ? reward::Grading::kOriginal : reward::Grading::kStrict};
  if (!rewards.url.empty()) rewards.attempts = config.remote_rm_attempts;
  return rewards;
}

std::optional<std::string> reward_problem(const json::value& reward,
                                          const std::string& reward_key) {
  if (teacher_scores(reward) != nullptr) return std::nullopt;
  const Expected<double> number = reward_number(reward, reward_key);
  if (number) return std::nullopt;
  return number.error().message;
}

rollout::ScoreFn make_score(const config::RunConfig& config, std::vector<std::string> end_marks) {
  reward::RewardConfig rewards = reward_config(config);
  rewards.end_marks = std::move(end_marks);
  if (!config.use_opd) {
    if (config.rm_type.empty()) return nullptr;
    return reward::make_reward(config.rm_type, rewards);
  }
  // Pure distillation: every reward is 0 unless a rule is asked for.
  const reward::RewardFn rule = reward::make_reward(config.rm_type, rewards);
  const reward::RemoteReward teacher{.url = config.rm_url,
                                     .num_attempts = config.remote_rm_attempts,
                                     .timeout = rewards.call_timeout,
                                     .seed = rewards.seed};
  const bool asks_teacher = config.opd_type == "sglang";
  const bool always_has_rule = !config.rm_type.empty();
  return [=, temperature = config.rollout_temperature](
             const Sample& sample, const std::stop_token& stop) -> Expected<json::value> {
    if (always_has_rule || sample.metadata.contains("rm_type")) return rule(sample, stop);
    if (asks_teacher) return reward::ask_teacher(teacher, temperature, sample, stop);
    return json::value(0.0);
  };
}

}  // namespace slime::loop
