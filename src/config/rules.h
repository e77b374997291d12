#pragma once

/// The rules between flags, one file for each group of them (rules_*.cpp). Each check applies the
/// defaults that follow from other flags, and notes what contradicts; config/validate.cpp calls all
/// of them, in its order.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/parse_flags.h"
#include "config/problems.h"
#include "config/run_config.h"

namespace slime::config {

void check_data(RunConfig& config, Problems& problems);
void check_rollout(RunConfig& config, Problems& problems);
/// Why no reward of the rule has a number under `key`, which `flag` gives: it answers with a number,
/// or with a record of other fields. Nothing where the rule is not built in.
std::optional<std::string> reward_key_problem(std::string_view rm_type, std::string_view key,
                                              std::string_view flag);
void check_rewards(const RunConfig& config, Problems& problems);

void check_distillation(const RunConfig& config, Problems& problems);
/// --pg-loss-type and --use-score-centering: what they cannot go with.
void check_objective(const RunConfig& config, Problems& problems);
/// Which correction of engine and trainer is meant, and whether it can work.
void check_mismatch(const RunConfig& config, Problems& problems,
                    std::vector<std::string>& warnings);
void check_critic(const ParsedFlags& flags, Problems& problems);
void check_preferences(const RunConfig& config, Problems& problems);
/// Supervised training on generated samples: which of them are trained.
void check_rejection(ParsedFlags& flags, Problems& problems);
/// Functions and libraries of the user's that the trainer calls.
void check_trainer_functions(const RunConfig& config, Problems& problems);
void check_algorithm(RunConfig& config, Problems& problems, std::vector<std::string>& warnings);

/// Defaults of functions that stand for a whole step; before all checks.
void complete_rollout_functions(ParsedFlags& flags);
/// Engines that outlive their trainer. Behind check_async().
void check_session(ParsedFlags& flags, Problems& problems);
/// Behind check_async().
void check_rollout_functions(ParsedFlags& flags, Problems& problems);
/// Conflicts of --environment with flags of functions that it replaces.
void check_environment(const ParsedFlags& flags, Problems& problems);
/// Functions of the user's that draw samples. Behind check_async().
void check_generate(ParsedFlags& flags, Problems& problems);

/// How many engines have processes of their own.
void check_engine_workers(ParsedFlags& flags, Problems& problems);
/// Behind it: how new weights come to those engines.
void check_weight_publishing(ParsedFlags& flags, Problems& problems);
/// Behind check_engine_workers(): --rollout-drafts, and SGLang's words for it.
void check_drafts(ParsedFlags& flags, Problems& problems);
/// Behind check_async(): what the engines' matrices are stored as.
void check_rollout_precision(ParsedFlags& flags, Problems& problems);
/// Behind check_async() and check_rollout_precision(): --true-on-policy.
void check_on_policy(ParsedFlags& flags, Problems& problems);
/// Generation beside training.
void check_async(ParsedFlags& flags, Problems& problems);

/// Behind check_async(): low-rank adapters.
void check_adapters(ParsedFlags& flags, Problems& problems);

void check_batches(RunConfig& config, Problems& problems);
/// --enable-mtp-training.
void check_draft_training(const RunConfig& config, Problems& problems);
/// How ranks divide the work. A part of check_batches().
void check_ranks(const RunConfig& config, Problems& problems);

void check_output(ParsedFlags& flags, Problems& problems);
/// --rollout-data-transport straw and its flags; which checkpoint to go on from.
void check_queue(ParsedFlags& flags, Problems& problems);
/// --rollout-buffer-url and what belongs to it.
void check_rollout_buffer(ParsedFlags& flags, Problems& problems);
/// Evaluation generates. Where nothing does, its flags have no effect, and neither have they
/// without an interval.
void check_evaluation_runs(ParsedFlags& flags);

}  // namespace slime::config
