#pragma once

/// Everything a user can set for `slime train`: RunConfig, which is all groups of flags.
///
/// Names are the words of the flags with `_` for `-`; defaults are the original's (spec section
/// 20). The flag table (config/flag_table.h) maps words to members; nothing else knows the words.
/// Users have one flat set of words, so RunConfig inherits its groups: no two groups can have a
/// member of the same name, and a reader takes the group it needs (`const RewardFlags&`) where the
/// caller has the whole. A RunConfig that came out of `parse_flags` and `complete_and_validate` is
/// complete and free of contradictions.

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "config/generation_flags.h"
#include "config/output_flags.h"
#include "config/training_flags.h"

namespace slime::config {

struct RunConfig : ModelFlags,
                   DataFlags,
                   QueueFlags,
                   RolloutFlags,
                   AsyncFlags,
                   EngineFlags,
                   EngineWorkerFlags,
                   RewardFlags,
                   HookFlags,
                   AlgorithmFlags,
                   TrainerFunctionFlags,
                   OptimizerFlags,
                   AdapterFlags,
                   BatchFlags,
                   EvalFlags,
                   OutputFlags,
                   ShapeFlags,
                   ParallelFlags {
  /// This configuration with the critic's overrides of --megatron-config-path, if there are any.
  std::shared_ptr<const RunConfig> critic;

  /// Aliases, and flags without effect, as given, for users' functions: "max_weight_staleness", "2"; a switch
  /// has an empty word. What aliases mean stands in the flags (config/aliases.h).
  std::map<std::string, std::string> given_aliases;

  /// Names of models and data sets on the hub, and the paths that the command has found for them: what
  /// --eval-config names cannot be put into a flag.
  std::map<std::string, std::string> found_paths;
  /// "; did you mean NAME?" where --hf-checkpoint is neither a path nor a name; may be empty.
  std::string model_guess;

  /// `slime train` updates the engine after every rollout; a dump says nothing of its engine, and is
  /// trained as the run that drew it was.
  bool has_update_interval() const { return train_async || !load_debug_rollout_data.empty(); }

  /// Responses are sampled by engines of this run.
  /// Engines go on when the trainer ends without having finished (--rollout-session-id).
  bool keeps_engines() const {
    return !rollout_session_id.get().empty() && num_engine_workers > 0 && !has_external_engines() &&
           actor_num_nodes == 1;
  }
  /// In flight where groups may have any age: as many as the engines draw at once.
  int64_t most_groups_of_any_age() const {
    const int64_t samples = std::max<int64_t>(1, n_samples_per_prompt);
    return std::max<int64_t>(1, sglang_server_concurrency * num_engines() / samples);
  }
  bool generates() const {
    return !trains_on_rows() && !debug_train_only && load_debug_rollout_data.empty();
  }

  /// Engines that take turns with the trainer have weights of their own, which change when somebody
  /// says so: the loop is another program's (loop/verb_loop.h).
  bool keeps_engine_weights = false;

  /// Prompts, scores and steps come by requests (src/tinker): there is no data and no reward to be named.
  bool takes_requests = false;

  bool is_on_gpus() const { return device == "cuda" || device == "hip"; }

  /// So many tokens are drawn before the trainer's arithmetic verifies them (docs/exact.md); 0: every step has it.
  int64_t verify_tokens() const {
    if (!true_on_policy.peek()) return 0;
    return rollout_verify_tokens.value_or(is_on_gpus() ? kUsualVerifyTokens : 0);
  }

  /// Of --adapter: this is one of several runs over one base, in one process (loop/adapter_runs.h). Empty: it
  /// is alone.
  std::string adapter_name;

  /// Nothing else computes on the device of a trainer that works: the engine waits, and there are no other runs.
  bool has_device_in_turns() const { return takes_turns() && adapter_name.empty(); }

  /// The engine reads the weights that the trainer changes; otherwise it has its own.
  bool shares_weights() const { return takes_turns() && !has_codes() && !keeps_engine_weights; }

  /// An engine on the device of every rank that trains, which take turns (roles/rank_engines.h): on GPUs
  /// wherever they can be, on CPUs, whose cores they share, where --rollout-num-gpus is the number of
  /// ranks and --colocate is given.
  bool has_engine_on_each_rank() const {
    const bool draws_while_nobody_trains = generates() && !debug_rollout_only && takes_turns();
    // A schedule that repeats asks one engine, whose batches repeat.
    if (world_size() == 1 || !draws_while_nobody_trains || deterministic_schedule) return false;
    return device != "cpu" || (colocate && rollout_num_gpus == world_size());
  }
  /// Engines are over the ranks that train, in their processes: one on each, or one over rank 0's.
  bool has_engines_over_ranks() const {
    return world_size() > 1 && generates() && !debug_rollout_only && num_engine_workers == 0;
  }
  /// Ranks that make up one of those engines; 1: it is its device's alone.
  int64_t ranks_of_own_engine() const {
    return has_engine_on_each_rank() ? rollout_num_gpus_per_engine : 1;
  }

  /// Samples per optimizer step once everything is known: --global-batch-size, or from
  /// --num-steps-per-rollout.
  int64_t samples_per_step() const;
  /// Rollout executions of a rollout step; a pair of preferences is one.
  int64_t samples_per_rollout() const {
    return is_preference() ? rollout_batch_size : rollout_batch_size * n_samples_per_prompt;
  }
};

}  // namespace slime::config
