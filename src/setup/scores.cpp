#include "setup/scores.h"

#include <algorithm>

#include "core/json.h"
#include "core/reward_number.h"
#include "reward/remote.h"

namespace slime::setup {
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

bool is_taught_by_server(const config::RunConfig& config) {
  return config.use_opd && config.opd_type == "sglang";
}

bool asks_server(const config::RunConfig& config, const Sample& sample) {
  // In evaluations the teacher is asked where there is no rule.
  return has_rule(config, sample) ? reward::asks_server(sample.metadata, config.rm_type)
                                  : is_taught_by_server(config);
}

std::chrono::duration<double> server_deadline(const config::RunConfig& config) {
  return static_cast<double>(config.remote_rm_attempts) * (call_timeout(config) + kLongestWait);
}

reward::RemoteReward teacher_of(const config::RunConfig& config) {
  return {.url = config.rm_url,
          .num_attempts = config.remote_rm_attempts,
          .timeout = call_timeout(config),
          .seed = static_cast<uint64_t>(config.seed)};
}

/// What an evaluation without a rule measures: minus the mean over the response's tokens of
/// log-prob - teacher's log-prob, an estimate of the divergence that distillation makes smaller.
Expected<json::value> closeness(const Sample& sample, const json::value& answer) {
  const auto teacher = json::value_to<std::vector<float>>(answer.at("teacher_log_probs"));
  if (sample.log_probs.size() != teacher.size())
    return failure("the sample has no log-probs of the engine to compare with the teacher's");
  double sum = 0;
  for (std::size_t i = 0; i < teacher.size(); ++i)
    sum += static_cast<double>(teacher[i]) - static_cast<double>(sample.log_probs[i]);
  return json::value(teacher.empty() ? 0.0 : sum / static_cast<double>(teacher.size()));
}

}  // namespace

std::chrono::duration<double> reward_deadline(const config::RunConfig& config,
                                              const Sample& sample) {
  if (has_rule(config, sample)) read_flags_of_rule(config, sample.metadata);
  if (!asks_server(config, sample))
    return std::chrono::duration<double>(config.reward_timeout_seconds.value_or(kRuleSeconds));
  return server_deadline(config);
}

int num_reward_threads(const config::RunConfig& config) {
  constexpr int64_t kConnections = 64;
  return static_cast<int>(config.rm_url.peek().empty()
                              ? config.reward_threads
                              : std::max(config.reward_threads.get(), kConnections));
}

void read_flags_of_rule(const config::RunConfig& config, const json::object& metadata) {
  if (reward::asks_server(metadata, config.rm_type)) {
    config.rm_url.get();
    config.remote_rm_attempts.get();
  }
  if (reward::grades_answers(metadata, config.rm_type)) config.no_rm_strict.get();
}

reward::RewardConfig reward_config(const config::RunConfig& config) {
  reward::RewardConfig rewards{.seed = static_cast<uint64_t>(config.seed),
                               .call_timeout = call_timeout(config),
                               .grading = config.no_rm_strict.peek() ? reward::Grading::kOriginal
                                                                     : reward::Grading::kStrict};
  // Samples say which rule they have, and read_flags_of_rule() what it asks for.
  if (!is_taught_by_server(config)) rewards.url = config.rm_url.peek();  // otherwise the teacher's
  if (!rewards.url.empty()) rewards.attempts = config.remote_rm_attempts.peek();
  return rewards;
}

std::optional<std::string> reward_problem(const json::value& reward,
                                          const std::string& reward_key) {
  const Expected<double> number = reward_number(reward, reward_key);
  if (number) return std::nullopt;
  return number.error().message;
}

bool lacks_labels(const config::RunConfig& config) {
  return config.use_opd && !config.rm_type.empty() && config.label_key.empty() &&
         !config.has_users_reward();
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
  const bool always_has_rule = !config.rm_type.empty();
  const bool may_lack_label = lacks_labels(config);
  return [=, type = config.rm_type.get()](const Sample& sample,
                                          const std::stop_token& stop) -> Expected<json::value> {
    if (may_lack_label && sample.label.is_null() &&
        reward::label_problem(sample.label, sample.metadata, type, rewards))
      return json::value(0.0);
    if (always_has_rule || sample.metadata.contains("rm_type")) return rule(sample, stop);
    return json::value(0.0);
  };
}

void add_teacher(const config::RunConfig& config, rollout::Scorer& scorer) {
  if (!is_taught_by_server(config)) return;
  scorer.teacher.emplace();
  scorer.teacher->ask = [teacher = teacher_of(config), temperature = config.rollout_temperature](
                            const Sample& sample, const std::stop_token& stop) {
    return reward::ask_teacher(teacher, temperature, sample, stop);
  };
  scorer.teacher->timeout = server_deadline(config);
  if (!scorer.rule.score || !config.rm_type.empty()) return;
  scorer.rule.of_evaluations = [rule = scorer.rule.score, teacher = scorer.teacher->ask](
                                   const Sample& sample,
                                   const std::stop_token& stop) -> Expected<json::value> {
    if (sample.metadata.contains("rm_type")) return rule(sample, stop);
    if (sample.response_length() == 0) return json::value(0.0);
    const Expected<json::value> answer = teacher(sample, stop);
    return answer ? closeness(sample, *answer) : answer;
  };
}

}  // namespace slime::setup
