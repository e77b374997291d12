#include "report/recorder.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/replace_file.h"
#include "estimate/process_memory.h"
#include "report/rollout_metrics.h"
#include "report/terminal.h"
#include "report/training_outcomes.h"
#include "setup/run_devices.h"

namespace slime::report {
namespace {

/// Several runs of one process cannot all redraw its lines.
Terminal terminal_of(const config::RunConfig& config) {
  Terminal terminal = detect_terminal();
  terminal.is_live &= config.adapter_name.empty();
  return terminal;
}

/// Responses of nearly the limit take nearly what was predicted for it.
constexpr double kNearLimit = 0.95;

}  // namespace

Recorder::Recorder(const config::RunConfig& config, const RunFolder& folder,
                   const setup::RunSchedule& schedule, const text::Tokenizer& tokenizer,
                   const json::object& run, RunMemory& memory, Timeline& timeline,
                   const Clock& clock)
    : config_(config),
      folder_(folder),
      schedule_(schedule),
      memory_(memory),
      timeline_(timeline),
      clock_(clock),
      metrics_(config, folder, schedule.first_step, run, clock,
               [this](const std::string& text) { message(text); }),
      summary_(!config.debug_rollout_only),
      users_output_(folder.plugin_logs()),
      progress_({.title = folder.title(),
                 .label = config.adapter_name,
                 .num_steps = schedule.num_steps,
                 .first_step = schedule.first_step},
                terminal_of(config), clock),
      rollouts_(config, folder, tokenizer, [this](const std::string& text) { message(text); }),
      utilization_(memory.is_on_gpu() ? kernels::nvml_utilization() : nullptr),
      signal_(config),
      trained_until_(clock.now()) {
  if (!config.profile) return;
  profiler_.emplace(folder.root() / "trace.json", config.profile_step_start,
                    config.profile_step_end, memory.is_on_gpu() && memory.is_here());
}

kernels::TraceRange Recorder::phase(const char* name, std::string_view unit, int64_t total) {
  progress_.phase_begin(name, unit, total);
  timeline_.enter("trainer", name);
  return kernels::TraceRange(name);
}

void Recorder::announce_trace(const std::optional<std::filesystem::path>& file) {
  if (file) message(fmt::format("trace: {} (opens in ui.perfetto.dev)", file->string()));
}

void Recorder::begin_step(int64_t step) {
  if (profiler_) announce_trace(profiler_->before_step(step));
}

void Recorder::add_samples(const Collected& collected, Metrics& metrics, StepSummary& line) {
  const bool has_rewards =
      !config_.trains_on_rows() && !collected.groups.front().samples.front().reward.is_null();
  if (!has_rewards) return;
  const double reward = mean_reward(collected.groups, config_.reward_key);
  metrics["rollout/raw_reward"] = reward;
  summary_.add_reward(reward);
  line.figures.emplace_back("reward", reward);
  add_metrics(metrics, sample_metrics(collected.groups, config_.reward_key, "rollout/"));
  add_metrics(metrics, reward_part_metrics(collected.groups, config_.reward_key, "rollout/"));
  if (config_.log_multi_turn) {
    add_metrics(metrics,
                multi_turn_metrics(collected.groups, config_.rollout_max_response_len.value_or(0)));
  }
  // Read where a reward has the field: numbers, and records without it, have no category.
  if (const std::string& category = config_.log_reward_category.peek(); !category.empty()) {
    const Metrics shares = category_metrics(collected.groups, category);
    if (!shares.empty()) config_.log_reward_category.get();
    add_metrics(metrics, shares);
  }
  if (config_.log_passrate)
    add_metrics(metrics, pass_at_k(collected.groups, config_.reward_key, "passrate/"));
}

void Recorder::add_untrained(int64_t step, const Collected& collected, Metrics& metrics) {
  if (!collected.untrained) return;
  const SampledTokens tokens =
      sampled_tokens(collected.groups, *collected.untrained, collected.masks_are_lost);
  add_metrics(metrics, untrained_metrics(tokens));
  if (const std::optional<std::string> told = untrained_.line(step, tokens)) message(*told);
}

void Recorder::add_training(int64_t step, const Collected& collected,
                            const train::TrainReport& report, Metrics& metrics, StepSummary& line) {
  add_metrics(metrics, report.rollout);
  add_metrics(metrics, report.perf);
  bool has_skipped = false;
  for (const train::StepReport& update : report.steps) {
    Metrics own = update.metrics;
    own["train/step"] = static_cast<double>(update.step);
    // The last update's are written with those of the rollout.
    if (&update != &report.steps.back()) {
      metrics_.write(step, own);
    } else {
      add_metrics(metrics, own);
    }
    if (!update.critic_skipped.empty())
      message(fmt::format("step {}: the critic was not updated: {}", step, update.critic_skipped));
    if (update.skipped.empty()) continue;
    has_skipped = true;
    message(fmt::format("step {}: not updated: {}", step, update.skipped));
  }
  if (has_skipped) {
    message(fmt::format("step {}: the batch is in {}", step,
                        rollouts_.write_skipped(step, collected).string()));
  }
  const double train = metrics["perf/train_time"];
  const double wait = std::max(0.0, seconds_between(trained_until_, clock_.now()) - train);
  trained_until_ = clock_.now();
  metrics["perf/train_wait_time"] = wait;
  metrics["perf/step_time"] = wait + train;
  metrics["perf/wait_time_ratio"] = wait / (wait + train);
  for (const auto& [figure, name] :
       {std::pair{"loss", "train/loss"}, std::pair{"kl", "train/kl_loss"},
        std::pair{"entropy", "train/entropy_loss"}, std::pair{"grad norm", "train/grad_norm"}}) {
    if (metrics.contains(name)) line.figures.emplace_back(figure, metrics[name]);
  }
  add_mismatch(step, metrics, line);
  line.tokens_per_second.emplace_back("train", metrics["perf/actor_train_tok_per_s"]);
}

/// Of an engine whose weights are rounded otherwise than the trainer's.
void Recorder::add_mismatch(int64_t step, const Metrics& metrics, StepSummary& line) {
  const auto k3 = metrics.find("train/train_rollout_k3");
  if (!config_.has_codes() || k3 == metrics.end()) return;
  line.figures.emplace_back("k3", k3->second);
  constexpr double kAlarming = 1e-2;
  if (k3->second <= kAlarming) return;
  message(
      fmt::format("step {}: the engine is far from the trainer, k3 {:.3g} (above {}): "
                  "--rollout-precision fp8{}",
                  step, k3->second, kAlarming,
                  config_.use_tis || config_.use_rollout_logprobs
                      ? " may be too coarse for this model; leave it out"
                      : " needs --use-tis, or is too coarse for this model"));
}

double Recorder::seconds_of_engines(std::string_view phase) const {
  double sum = 0;
  for (int64_t index = 0; index < config_.num_engines(); ++index)
    sum += timeline_.seconds(engine_lane(index), phase);
  return sum / static_cast<double>(config_.num_engines());
}

void Recorder::add_waits(Metrics& metrics, StepSummary& line) {
  const double step = timeline_.step_seconds();
  const double waited = timeline_.seconds("trainer", "wait");
  const double paused = seconds_of_engines("paused");
  const double idle = std::max(0.0, step - seconds_of_engines("generate") - paused);
  metrics["perf/wait_groups_time"] = waited;
  metrics["perf/engine_idle_time"] = idle;
  metrics["perf/engine_paused_time"] = paused;
  metrics["perf/queue_full_time"] = timeline_.seconds("rollout", "queue full");
  metrics["perf/update_hold_time"] = timeline_.seconds("rollout", "update");
  metrics["perf/lease_time"] = timeline_.seconds("rollout", "lease");
  if (step <= 0) return;
  line.figures.emplace_back("lag", metrics["rollout/weight_version/lag_mean"]);
  line.figures.emplace_back("queue", metrics["rollout/queue/finished_groups"]);
  line.figures.emplace_back("trainer waits %", 100 * waited / step);
  line.figures.emplace_back("engine idle %", 100 * idle / step);
}

void Recorder::add_memory(int64_t step, Metrics& metrics, StepSummary& line) {
  metrics["perf/rss_bytes"] = estimate::resident_bytes();
  const std::string device = memory_.is_on_gpu() ? "perf/gpu_bytes_" : "perf/rss_bytes_";
  const int64_t rollout = memory_.peak(estimate::Phase::kGenerate),
                train = memory_.peak(estimate::Phase::kTrain);
  if (rollout > 0) metrics[device + "generate"] = static_cast<double>(rollout);
  if (train > 0) metrics[device + "train"] = static_cast<double>(train);
  // Before the C library keeps what earlier steps have freed, which the table does not count.
  if (step == schedule_.first_step) {
    const auto limit = static_cast<double>(config_.rollout_max_response_len.value_or(0));
    const auto length = metrics.find("rollout/response_len/mean");
    std::string text = memory_.plan().compare(memory_.measured(estimate::Phase::kGenerate),
                                              memory_.measured(estimate::Phase::kTrain));
    if (length != metrics.end() && length->second < kNearLimit * limit)
      text += fmt::format("; the prediction is for responses of {:.0f} tokens, these had {:.0f}",
                          limit, length->second);
    message(text);
  }
  line.memory = memory_.use_of_step();
  heap_trim_.after_step(metrics["perf/rss_bytes"]);
}

void Recorder::add_utilization(Metrics& metrics) {
  const std::vector<double> shares = utilization_.take();
  if (shares.empty()) return;
  double sum = 0;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    metrics[fmt::format("perf/gpu_utilization/{}", i)] = shares[i];
    sum += shares[i];
  }
  metrics["perf/gpu_utilization/mean"] = sum / static_cast<double>(shares.size());
}

void Recorder::end_step(int64_t step, const Collected& collected,
                        const train::TrainReport* report) {
  const auto range = phase("record");
  Metrics metrics = collected.metrics;
  StepSummary line{.step = step};
  add_samples(collected, metrics, line);
  add_untrained(step, collected, metrics);
  if (collected.generated_tokens > 0) {
    add_metrics(metrics, rollout_speed(collected.groups, collected.seconds,
                                       setup::num_rollout_devices(config_)));
    line.tokens_per_second.emplace_back(
        config_.train_async ? "wait" : "generate",
        static_cast<double>(collected.generated_tokens) / collected.seconds);
  }
  // Where nothing was generated while the trainer waited, samples have a length all the same.
  if (const auto length = metrics.find("rollout/response_len/mean"); length != metrics.end())
    line.figures.emplace_back("length", length->second);
  const Metrics of_rollout = metrics;
  if (report != nullptr) add_training(step, collected, *report, metrics, line);
  if (const auto output = users_output_.line()) message(*output);
  if (const auto lack = signal_.line_of(step, collected.groups, report)) message(*lack);
  if (config_.train_async) add_waits(metrics, line);
  rollouts_.write(step, collected, report);
  for (const PhaseTime& phase : progress_.phase_times())
    metrics["phase/" + phase.name] = phase.seconds;
  // The original's names: of what came between the step before and this one.
  for (const auto& [phase, name] : {std::pair{"phase/publish", "perf/update_weights_time"},
                                    std::pair{"phase/save", "perf/save_model_time"}}) {
    if (metrics.contains(phase)) metrics[name] = metrics[phase];
  }
  add_memory(step, metrics, line);
  add_utilization(metrics);
  if (collected.is_logged) {
    for (const auto& [name, value] : of_rollout) metrics.erase(name);
  }
  add_metrics(metrics, collected.logged);
  StepDetails details;
  if (!config_.trains_on_rows())
    details = details_of(collected.groups, report, config_.reward_key, config_.log_samples);
  metrics_.write(step, metrics, details);
  progress_.step_done(std::move(line));
  timeline_.enter("trainer", "");
  timeline_.end_step(step);
  if (report != nullptr && !report->stopped.empty())
    throw ConfigError(report->stopped + "; the reasons are above");
  folder_.check_reserve();
}

void Recorder::evaluated(int64_t step, const EvalReport& report) {
  for (const std::string& remark : report.remarks) message(remark);
  if (report.scores.empty()) return;
  Metrics metrics = report.is_logged ? Metrics() : report.metrics;
  add_metrics(metrics, report.logged);
  if (!metrics.empty()) metrics_.write(std::max<int64_t>(step, 0), metrics);
  RunSummary::Scores scores;
  for (const EvalScore& score : report.scores) {
    scores.emplace_back(score.name, score.mean_reward);
    progress_.evaluated(score.name, score.mean_reward);
  }
  summary_.add_scores(std::move(scores));
}

void Recorder::evaluated_beside(const ConcurrentEvaluation& done) {
  EvalReport report = done.report;
  report.metrics["eval/weight_version/version"] = static_cast<double>(done.version);
  report.metrics["eval/weight_version/lag"] = static_cast<double>(done.lag);
  report.metrics["perf/eval_time"] = done.seconds;
  evaluated(done.step, report);
}

void Recorder::saved(int64_t step) {
  summary_.set_saved(step);
  rollouts_.drain();
}

void Recorder::sync() {
  const std::filesystem::path events = folder_.root() / "tensorboard";
  std::error_code none;  // a folder that is not there
  for (const auto& entry : std::filesystem::directory_iterator(events, none))
    sync_path(entry.path());
  for (const auto& path :
       {folder_.metrics(), folder_.timeline(), folder_.run_json(), events, folder_.root()})
    sync_path(path);
}

void Recorder::finish(int64_t steps_done, bool interrupted) {
  if (const auto output = users_output_.line()) message(*output);
  rollouts_.drain();
  if (profiler_) announce_trace(profiler_->after_last_step());
  timeline_.finish();
  const std::string root = folder_.root().string();
  progress_.finish(folder_.title(),
                   summary_.table(steps_done, schedule_.num_steps, root, interrupted));
}

}  // namespace slime::report
