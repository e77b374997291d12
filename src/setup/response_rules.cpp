#include "setup/response_rules.h"

#include <string>

#include "setup/scores.h"

namespace slime::setup {

rollout::ResponseRules training_rules(const config::RunConfig& config) {
  rollout::ResponseRules rules;
  rules.sampling.max_new_tokens = config.rollout_max_response_len.value_or(0);
  rules.sampling.temperature = config.rollout_temperature;
  rules.sampling.top_p = config.rollout_top_p;
  rules.sampling.top_k = config.rollout_top_k;
  rules.sampling.stop = config.rollout_stop;
  rules.sampling.stop_token_ids.assign(config.rollout_stop_token_ids.begin(),
                                       config.rollout_stop_token_ids.end());
  rules.sampling.skip_special_tokens = config.rollout_skip_special_tokens;
  rules.sampling.no_stop_trim = true;
  rules.sampling.spaces_between_special_tokens = false;
  rules.max_context_length = config.rollout_max_context_len;
  rules.keeps_top_p_ids = config.rollout_top_p < 1;
  rules.keeps_top_p_log_probs = config.use_score_centering && rules.keeps_top_p_ids;
  if (config.use_score_centering && !rules.keeps_top_p_ids)
    rules.topk_log_probs = config.score_centering_top_k;
  rules.keeps_routed_experts = config.use_rollout_routing_replay;
  rules.seed = static_cast<uint64_t>(config.seed);
  rules.draws_by_prompt = config.rollout_noise == "prompt";
  rules.reward_problem = [key = config.reward_key](const json::value& reward) {
    return reward_problem(reward, key);
  };
  return rules;
}

rollout::ResponseRules evaluation_rules(const config::EvalSetConfig& set,
                                        const config::RunConfig& config) {
  rollout::ResponseRules rules = training_rules(config);
  rules.is_evaluation = true;
  rules.keeps_top_p_ids = rules.keeps_top_p_log_probs = false;
  rules.topk_log_probs = 0;
  rules.keeps_routed_experts = false;
  engine::SamplingParams& sampling = rules.sampling;
  sampling.temperature = set.temperature;
  sampling.top_p = set.top_p;
  sampling.top_k = set.top_k;
  sampling.max_new_tokens = set.max_response_len.value_or(sampling.max_new_tokens);
  sampling.min_new_tokens = set.min_new_tokens;
  sampling.stop = set.stop;
  sampling.stop_token_ids.assign(set.stop_token_ids.begin(), set.stop_token_ids.end());
  sampling.repetition_penalty = set.repetition_penalty;
  if (set.skip_special_tokens) sampling.skip_special_tokens = *set.skip_special_tokens;
  sampling.no_stop_trim = set.no_stop_trim;
  if (config.eval_max_context_len) rules.max_context_length = config.eval_max_context_len;
  rules.seed = static_cast<uint64_t>(config.seed) + 1;  // draws of its own
  rules.draws_by_prompt = false;
  rules.reward_problem = [key = config.eval_reward_key](const json::value& reward) {
    return reward_problem(reward, key);
  };
  return rules;
}

}  // namespace slime::setup
