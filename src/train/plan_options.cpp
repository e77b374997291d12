#include "train/plan_options.h"

#include "kernels/device.h"

namespace slime::train {
namespace {

/// Whether a reward of 0 means an advantage of 0 on every token.
bool zero_reward_is_zero_advantage(const TrainConfig& config) {
  return std::holds_alternative<algo::GroupRelative>(config.advantage) &&
         !config.normalize_advantages && !config.distillation_coef && !config.users_advantage &&
         !config.postprocess;
}

}  // namespace

bool zero_advantage_is_inert(const TrainConfig& config) {
  return config.objective == Objective::kPolicy && !config.policy_functions &&
         config.policy.entropy_coef == 0 &&
         (!config.policy.kl_loss || config.policy.kl_loss->coef == 0);
}

PlanOptions plan_options_of(const TrainConfig& config, model::Network& network) {
  const bool separates = zero_advantage_is_inert(config) && zero_reward_is_zero_advantage(config);
  PlanOptions options;
  options.batching = config.batching;
  options.packing = config.packing;
  options.reduction = config.reduction;
  options.replays_top_p = config.replays_top_p && config.objective == Objective::kPolicy;
  if (config.policy.centering && config.objective == Objective::kPolicy)
    options.centers_scores = config.policy.centering->num_listed;
  if (config.routing_replay == TrainConfig::RoutingReplay::kEngine &&
      config.objective == Objective::kPolicy && network.config().has_experts())
    options.replays_experts_of = &network.config();
  options.rotary_switch = network.config().rotary_switch();
  options.rotary_offset = network.config().max_positions;
  options.scores_as_sampled = config.objective == Objective::kPolicy;
  options.attends_in_pages = config.true_on_policy || config.in_training_arithmetic;
  options.orders_backward = config.orders_backward;
  options.keeps_pairs = config.objective == Objective::kPreference;
  options.separates_zero_rewards = separates;
  options.dtype = kernels::accumulator_of(network.weights().flat());
  return options;
}

}  // namespace slime::train
