#pragma once

/// Scorers of a run's samples, by its flags: a rule, a server, a teacher.

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "core/sample.h"
#include "reward/reward.h"
#include "rollout/scorer.h"

namespace slime::setup {

/// What a run's rewards are computed with.
reward::RewardConfig reward_config(const config::RunConfig& config);

/// Records that the run reads what the rule of samples with this metadata asks for: a server's
/// address, how strictly answers are graded.
void read_flags_of_rule(const config::RunConfig& config, const json::object& metadata);

/// Why a reward cannot be used: the number that `reward_key` names is missing, no number or not
/// finite.
std::optional<std::string> reward_problem(const json::value& reward, const std::string& reward_key);

/// A published script of distillation has a rule and no labels: its rewards are 0, and the teacher alone teaches.
bool lacks_labels(const config::RunConfig& config);

/// Null where nothing is scored. Throws ConfigError for a rule that does not exist. `end_marks` are
/// the model's, which rules do not grade.
rollout::ScoreFn make_score(const config::RunConfig& config,
                            std::vector<std::string> end_marks = {});

/// The longest that the score of this sample may take: --reward-timeout-seconds (without the flag 30)
/// for what is computed here; of a server, each call has as long (without the flag 120), and all of
/// them with the waits between them have this.
std::chrono::duration<double> reward_deadline(const config::RunConfig& config,
                                              const Sample& sample);

/// Threads that wait for a server cost nothing; those that compute take a core each. Where there is
/// a server, any row may ask it.
int num_reward_threads(const config::RunConfig& config);

/// With --opd-type sglang: a teacher is asked for its log-probs of every sample that trains, besides
/// what gives it a reward. An evaluation asks it where there is no rule, and its score is minus the
/// mean divergence from the teacher per token.
void add_teacher(const config::RunConfig& config, rollout::Scorer& scorer);

}  // namespace slime::setup
