#include "loop/evaluation.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "core/error.h"
#include "plugin/plugins.h"
#include "report/rollout_metrics.h"
#include "roles/run_start.h"
#include "setup/response_rules.h"
#include "setup/scores.h"

namespace slime::loop {

Evaluation::Evaluation(const config::RunConfig& config, const setup::ModelText& text)
    : config_(config) {
  for (config::EvalSetConfig& set : config::eval_sets_of(config)) {
    for (const std::string& key : set.without_effect) {
      remarks_.push_back(
          fmt::format("--eval-config: data set {}: {} has no effect here", set.name, key));
    }
    setup::check_stop_tokens(fmt::format("evaluation data set {}: stop_token_ids", set.name),
                             set.stop_token_ids, text);
    for (std::string& note : setup::unread_variables(set, text)) {
      // Variables of the flags are told with training, where it renders.
      const bool is_told =
          config.apply_chat_template &&
          set.apply_chat_template_kwargs == parse_json(config.apply_chat_template_kwargs, "");
      if (!is_told) remarks_.push_back(std::move(note));
    }
    buffer::Dataset dataset = setup::load_eval_prompts(config, text, set);
    const auto missing = roles::missing_fields(dataset, config, set);
    remarks_.insert(remarks_.end(), missing.begin(), missing.end());
    rollout::ResponseRules rules = setup::evaluation_rules(set, config);
    if (dataset.num_too_long() > 0) {
      remarks_.push_back(fmt::format(
          "evaluation {}: {} prompts are longer than --eval-max-prompt-len and are left out",
          set.name, dataset.num_too_long()));
    }
    sets_.push_back(
        std::make_unique<Set>(Set{std::move(set), std::move(rules), std::move(dataset)}));
  }
}

std::vector<std::string> Evaluation::own_rewards() const {
  std::vector<std::string> paths;
  for (const auto& set : sets_) {
    if (!set->config.custom_rm_path.empty()) paths.push_back(set->config.custom_rm_path);
  }
  return paths;
}

void Evaluation::draw_by(plugin::Plugins& plugins) {
  for (const auto& set : sets_) {
    const std::string& own = set->config.custom_generate_function_path;
    set->rules.generate = plugins.generate(
        own.empty() ? config_.custom_generate_function_path : own, /*is_evaluation=*/true);
  }
}

int64_t Evaluation::num_prompts() const {
  int64_t count = 0;
  for (const auto& set : sets_) count += set->dataset.size();
  return count;
}

std::vector<std::string> Evaluation::names() const {
  std::vector<std::string> names;
  for (const auto& set : sets_) names.push_back(set->config.name);
  return names;
}

const buffer::Dataset& Evaluation::dataset(const std::string& name) const {
  for (const auto& set : sets_)
    if (set->config.name == name) return set->dataset;
  throw BugError(fmt::format("there is no evaluation set {}", name));
}

void Evaluation::add_score(report::EvalReport& report, report::EvalScore& score,
                           int64_t num_too_long) const {
  const std::string prefix = fmt::format("eval/{}", score.name);
  const std::string& key = config_.eval_reward_key;
  const int64_t failed = report::num_failed(score.groups);
  const std::vector<Group> rest =
      config_.eval_leave_out_failed ? report::without_failed(score.groups) : std::vector<Group>();
  const std::vector<Group>& counted = config_.eval_leave_out_failed ? rest : score.groups;
  score.mean_reward = report::mean_reward(counted, key);
  report.metrics[prefix] = score.mean_reward;
  report.metrics[prefix + "-failed"] = static_cast<double>(failed);
  report.metrics[prefix + "-too_long"] = static_cast<double>(num_too_long);
  report::Metrics samples = report::sample_metrics(counted, key, prefix + "/");
  report.metrics[prefix + "-truncated_ratio"] = samples[prefix + "/truncated_ratio"];
  report::add_metrics(report.metrics, samples);
  report::add_metrics(report.metrics, report::reward_part_metrics(counted, key, prefix + "/"));
  if (config_.log_passrate)
    report::add_metrics(report.metrics, report::pass_at_k(counted, key, prefix + "-"));
  if (failed > 0) {
    int64_t total = 0;
    for (const Group& group : score.groups) total += static_cast<int64_t>(group.samples.size());
    report.remarks.push_back(fmt::format(
        "evaluation {}: {} of {} samples failed and {}: {}", score.name, failed, total,
        config_.eval_leave_out_failed ? "are left out (--eval-leave-out-failed)" : "count 0",
        report::reasons_of_failures(score.groups, 3)));
  }
}

namespace {

/// Takes those of `groups` away that are among `done`.
void leave_out(std::vector<Group>& groups, const std::vector<Group>& done) {
  std::set<int64_t> ordinals;
  for (const Group& group : done) ordinals.insert(group.ordinal);
  std::erase_if(groups, [&](const Group& group) { return ordinals.contains(group.ordinal); });
}

}  // namespace

report::EvalReport Evaluation::run(rollout::Rollout& rollout, const std::atomic<bool>& stop,
                                   const EvaluationRecord& record) const {
  report::EvalReport report;
  for (const auto& set : sets_) {
    buffer::DataSource source(&set->dataset, {.samples_per_prompt = set->config.n_samples});
    std::vector<Group> groups = source.take(set->dataset.size());
    for (Group& group : groups) {
      for (Sample& sample : group.samples) {
        sample.metadata = config::eval_metadata(sample.metadata, set->config.rm_type,
                                                set->config.metadata_overrides);
        sample.custom_rm_path = set->config.custom_rm_path;
      }
    }
    std::vector<Group> done;
    rollout::OnGroupFn on_group;
    if (record.done) done = record.done(set->config.name);
    if (record.add) on_group = [&](const Group& group) { record.add(set->config.name, group); };
    leave_out(groups, done);
    std::vector<Group> drawn =
        rollout.evaluate(std::move(groups), set->rules, stop, std::move(on_group));
    if (stop.load()) break;
    std::ranges::move(done, std::back_inserter(drawn));
    std::ranges::sort(drawn, {}, &Group::ordinal);
    report::EvalScore score{.name = set->config.name, .groups = std::move(drawn)};
    add_score(report, score, set->dataset.num_too_long());
    report.scores.push_back(std::move(score));
  }
  return report;
}

}  // namespace slime::loop
