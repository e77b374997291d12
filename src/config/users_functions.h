#pragma once

/// The functions of the user's that a run's flags name, and not those that are built in under the
/// original's names (docs/plugins.md).

#include <string>
#include <string_view>
#include <vector>

#include "config/run_config.h"

namespace slime::config {

/// --rm-type math_verify: the reference package, asked in a plug-in host like a function of the user's.
inline constexpr std::string_view kMathVerifyReward =
    "slime.rollout.rm_hub.math_verify_reward.reward_func";
bool names_math_verify(std::string_view rm_type);

struct UsersFunction {
  std::string_view flag;       // "--custom-rm-path"
  std::string_view hook;       // "reward": what python/slime/host/hooks.py calls it
  std::string path;            // module.name, file.py:name, file.py
  bool is_called = true;       // this run has a use for it
  bool is_of_samples = false;  // generation waits for what it says of a sample or a group
  bool keeps_state = false;    // from call to call: there is one of it, in one host
};

/// Those that the run calls.
std::vector<UsersFunction> users_functions(const RunConfig& config);
/// Those that it does not: nothing is generated, evaluated or trained.
std::vector<UsersFunction> idle_functions(const RunConfig& config);

// Whether a flag names a function or class of the user's that the run calls.

/// --dynamic-sampling-filter-path.
bool has_users_filter(const RunConfig& config);
/// --rollout-function-path.
bool has_users_rollout(const RunConfig& config);
/// --eval-function-path.
bool has_users_evaluation(const RunConfig& config);
/// --data-source-path.
bool has_users_data_source(const RunConfig& config);

/// Generate functions of training and of evaluation sets, each once; empty: the engine draws alone.
std::vector<std::string> generate_paths(const RunConfig& config);

/// Whether functions of the user's that the trainer calls have tensors: in Python, beside each rank.
bool shares_tensors(const RunConfig& config);

/// The path of the built-in rollout function that reads rows to train on: supervised training.
bool names_rows(std::string_view path);
/// The rollout functions that are built in, by the original's names.
bool is_built_in_rollout(std::string_view path);
/// Groups that wait are given out with the oldest tokens first: --buffer-sort-by-staleness, or the
/// function that the original has for it.
bool gives_stalest_first(const RunConfig& config);
/// --rollout-function-path names the one that goes on while the trainer trains.
bool names_fully_async(const RunConfig& config);

}  // namespace slime::config
