#include "loop/evaluation.h"

#include <fmt/format.h>

#include "loop/rollout_metrics.h"

namespace slime::loop {

rollout::ResponseRules training_rules(const RunConfig& config) {
  rollout::ResponseRules rules;
  rules.sampling.max_new_tokens = config.rollout_max_response_len.value_or(0);
  rules.sampling.temperature = config.rollout_temperature;
  rules.sampling.top_p = config.rollout_top_p;
  rules.sampling.top_k = config.rollout_top_k;
  rules.sampling.stop = config.rollout_stop;
  rules.sampling.stop_token_ids.assign(config.rollout_stop_token_ids.begin(), config.rollout_stop_token_ids.end());
  rules.sampling.skip_special_tokens = config.rollout_skip_special_tokens;
  rules.sampling.no_stop_trim = true;
  rules.sampling.spaces_between_special_tokens = false;
  rules.max_context_length = config.rollout_max_context_len;
  rules.seed = static_cast<uint64_t>(config.seed);
  return rules;
}

Evaluation::Evaluation(const RunConfig& config, const ModelText& text) : config_(config), rules_(training_rules(config)) {
  rules_.sampling.temperature = config.eval_temperature.value_or(config.rollout_temperature);
  rules_.sampling.top_p = config.eval_top_p.value_or(config.rollout_top_p);
  rules_.sampling.top_k = config.eval_top_k.value_or(config.rollout_top_k);
  rules_.sampling.max_new_tokens = config.eval_max_response_len.value_or(rules_.sampling.max_new_tokens);
  rules_.sampling.min_new_tokens = config.eval_min_new_tokens.value_or(0);
  rules_.seed = static_cast<uint64_t>(config.seed) + 1;  // draws of its own
  for (std::size_t i = 0; i + 1 < config.eval_prompt_data.size(); i += 2) {
    sets_.push_back(std::make_unique<Set>(
        Set{config.eval_prompt_data[i], load_eval_prompts(config, text, config.eval_prompt_data[i + 1])}));
  }
}

int64_t Evaluation::num_samples() const {
  int64_t count = 0;
  for (const auto& set : sets_) count += set->dataset.size() * config_.n_samples_per_eval_prompt;
  return count;
}

EvalReport Evaluation::run(rollout::Rollout& rollout, const std::atomic<bool>& stop) const {
  EvalReport report;
  for (const auto& set : sets_) {
    buffer::DataSource source(&set->dataset, {.samples_per_prompt = config_.n_samples_per_eval_prompt});
    EvalScore score{.name = set->name, .groups = rollout.evaluate(source.take(set->dataset.size()), rules_, stop)};
    if (stop.load()) break;
    const std::string prefix = fmt::format("eval/{}", set->name);
    score.mean_reward = mean_reward(score.groups, config_.eval_reward_key);
    report.metrics[prefix] = score.mean_reward;
    Metrics samples = sample_metrics(score.groups, config_.eval_reward_key, prefix + "/");
    report.metrics[prefix + "-truncated_ratio"] = samples[prefix + "/truncated_ratio"];
    add_metrics(report.metrics, samples);
    if (config_.log_passrate) {
      add_metrics(report.metrics, pass_at_k(score.groups, config_.eval_reward_key, prefix + "-"));
    }
    report.scores.push_back(std::move(score));
  }
  return report;
}

}  // namespace slime::loop
