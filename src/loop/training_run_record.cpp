/// What a step of a training run leaves behind: metrics, the line on the display, rollouts.

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "core/error.h"
#include "loop/periodic.h"
#include "loop/process_memory.h"
#include "loop/rollout_files.h"
#include "loop/rollout_metrics.h"
#include "loop/training_fates.h"
#include "loop/training_run.h"

namespace slime::loop {

constexpr double kGibibyte = 1 << 30;

view::MemoryUse TrainingRun::memory_of_step() const {
  const Turn turn = train_peak_ >= rollout_peak_ ? Turn::kTrain : Turn::kGenerate;
  const int64_t peak = std::max(train_peak_, rollout_peak_);
  return {.now = static_cast<double>(memory_now()) / kGibibyte,
          .peak = static_cast<double>(peak) / kGibibyte,
          .holders = memory_->holders(turn, peak)};
}

void TrainingRun::record(int64_t step, const Collected& collected,
                         const train::TrainReport* report) {
  const auto range = phase("record");
  Metrics metrics = collected.metrics;
  view::StepSummary summary{.step = step};
  const bool has_rewards =
      !config_.trains_on_rows() && !collected.groups.front().samples.front().reward.is_null();
  if (has_rewards) {
    const double reward = mean_reward(collected.groups, config_.reward_key);
    metrics["rollout/raw_reward"] = reward;
    if (!first_reward_) first_reward_ = reward;
    last_reward_ = reward;
    summary.figures.emplace_back("reward", reward);
    add_metrics(metrics, sample_metrics(collected.groups, config_.reward_key, "rollout/"));
    if (config_.log_multi_turn) {
      add_metrics(metrics, multi_turn_metrics(collected.groups,
                                              config_.rollout_max_response_len.value_or(0)));
    }
    if (!config_.log_reward_category.empty()) {
      add_metrics(metrics, category_metrics(collected.groups, config_.log_reward_category));
    }
    if (config_.log_passrate)
      add_metrics(metrics, pass_at_k(collected.groups, config_.reward_key, "passrate/"));
  }
  if (collected.generated_tokens > 0) {
    add_metrics(metrics, rollout_speed(collected.groups, collected.seconds));
    summary.tokens_per_second.emplace_back(
        "generate", static_cast<double>(collected.generated_tokens) / collected.seconds);
    summary.figures.emplace_back("length", metrics["rollout/response_len/mean"]);
  }
  if (report != nullptr) {
    add_metrics(metrics, report->rollout);
    add_metrics(metrics, report->perf);
    for (const train::StepReport& update : report->steps) {
      add_metrics(metrics, update.metrics);
      metrics["train/step"] = static_cast<double>(update.step);
      if (!update.skipped.empty())
        progress_->message(fmt::format("step {}: not updated: {}", step, update.skipped));
    }
    if (std::ranges::any_of(report->steps, [](const train::StepReport& update) {
          return !update.skipped.empty();
        })) {
      write_samples(folder_.skipped(step), collected.groups);
      progress_->message(
          fmt::format("step {}: the batch is in {}", step, folder_.skipped(step).string()));
    }
    const double train = metrics["perf/train_time"];
    const double wait = std::max(0.0, seconds_between(trained_until_, clock_.now()) - train);
    trained_until_ = clock_.now();
    metrics["perf/train_wait_time"] = wait;
    metrics["perf/step_time"] = wait + train;
    metrics["perf/wait_time_ratio"] = wait / (wait + train);
    for (const buffer::LedgerRecord& fate : training_fates(collected.groups, *report, step))
      note_fate(fate);
    for (const auto& [figure, name] :
         {std::pair{"loss", "train/loss"}, std::pair{"kl", "train/kl_loss"},
          std::pair{"entropy", "train/entropy_loss"}, std::pair{"grad norm", "train/grad_norm"}}) {
      if (metrics.contains(name)) summary.figures.emplace_back(figure, metrics[name]);
    }
    summary.tokens_per_second.emplace_back("train", metrics["perf/actor_train_tok_per_s"]);
  }
  write_rollout_files(step, collected, report);
  for (const view::PhaseTime& phase : progress_->phase_times())
    metrics["phase/" + phase.name] = phase.seconds;
  metrics["perf/rss_bytes"] = resident_bytes();
  const std::string device = is_on_gpu() ? "perf/gpu_bytes_" : "perf/rss_bytes_";
  if (rollout_peak_ > 0) metrics[device + "generate"] = static_cast<double>(rollout_peak_);
  if (train_peak_ > 0) metrics[device + "train"] = static_cast<double>(train_peak_);
  if (step == first_step_) progress_->message(memory_->compare(rollout_peak_, train_peak_));
  summary.memory = memory_of_step();
  heap_trim_.after_step(metrics["perf/rss_bytes"]);
  write_metrics(step, metrics);
  progress_->step_done(std::move(summary));
  if (report != nullptr && !report->stopped.empty())
    throw ConfigError(report->stopped + "; the reasons are above");
}

void TrainingRun::write_metrics(int64_t step, const Metrics& metrics) {
  tracker_->write(step, metrics);
  if (wandb_ == nullptr) return;
  const int64_t plotted = plotted_step(step, config_.wandb_always_use_train_step,
                                       config_.samples_per_rollout(), config_.samples_per_step());
  wandb_->write(with_step_axes(metrics, plotted));
}

void TrainingRun::write_rollout_files(int64_t step, const Collected& collected,
                                      const train::TrainReport* report) const {
  if (!config_.save_debug_rollout_data.empty()) {
    write_samples(numbered_path(config_.save_debug_rollout_data, step), collected.groups);
  }
  if (config_.no_save_rollouts || config_.trains_on_rows()) return;
  const auto texts = [this](const Sample& sample) {
    text::StreamDetokenizer stream(*text_.tokenizer);
    std::vector<std::string> pieces;
    for (int64_t i = sample.prompt_length; i < static_cast<int64_t>(sample.tokens.size()); ++i) {
      pieces.push_back(stream.push(sample.tokens[static_cast<std::size_t>(i)]));
    }
    return pieces;
  };
  std::map<int64_t, const std::vector<float>*>
      log_probs;  // by sample ordinal; the trainer keeps the order of the groups
  if (report != nullptr) {
    std::size_t i = 0;
    for (const Group& group : collected.groups) {
      for (const Sample& sample : group.samples)
        log_probs[sample.ordinal] = &report->log_probs.at(i++);
    }
  }
  const auto train_log_probs = [&](const Sample& sample) {
    return log_probs.contains(sample.ordinal) ? *log_probs[sample.ordinal] : std::vector<float>{};
  };
  write_samples(folder_.rollouts(step), collected.groups,
                {.train_log_probs = train_log_probs, .token_texts = texts});
}

}  // namespace slime::loop
