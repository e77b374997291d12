#pragma once

/// Where the scores of a run's samples come from, by its flags: a rule, a server, a teacher.

#include <chrono>
#include <vector>

#include "config/run_config.h"
#include "core/sample.h"
#include "rollout/reward_call.h"

namespace slime::loop {

/// Null where nothing is scored. Throws ConfigError for a rule that does not exist.
rollout::ScoreFn make_score(const config::RunConfig& config);

/// The longest that one score may take. A server's answer is bounded by its own attempts and waits.
std::chrono::duration<double> reward_deadline(const config::RunConfig& config);

/// Threads that wait for a server cost nothing; those that compute take a core each.
int num_reward_threads(const config::RunConfig& config);

/// Scores of a teacher elsewhere arrive as rewards; they are a column, and the reward of pure
/// distillation is 0.
void take_teacher_scores(std::vector<Group>& groups);

}  // namespace slime::loop
