#include "loop/training_run.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "buffer/filter.h"
#include "core/calendar.h"
#include "core/error.h"
#include "loop/parse_flags.h"
#include "loop/process_memory.h"
#include "loop/rollout_files.h"
#include "loop/rollout_metrics.h"
#include "loop/train_config.h"
#include "reward/reward.h"
#include "view/terminal.h"

namespace slime::loop {
namespace {

/// Shape flags of a script that was written for another model are found here, all at once.
void check_shape(const RunConfig& config, const model::ModelConfig& model) {
  std::vector<std::string> problems;
  const auto same = [&](const char* flag, const auto& given, auto actual) {
    if (given && *given != actual) {
      problems.push_back(fmt::format("{} {}: {} of --hf-checkpoint says {}", flag, *given, "config.json", actual));
    }
  };
  same("--num-layers", config.num_layers, model.num_layers);
  same("--hidden-size", config.hidden_size, model.hidden_size);
  same("--ffn-hidden-size", config.ffn_hidden_size, model.intermediate_size);
  same("--num-attention-heads", config.num_attention_heads, model.num_heads);
  same("--num-query-groups", config.num_query_groups, model.num_kv_heads);
  same("--kv-channels", config.kv_channels, model.head_dim);
  same("--vocab-size", config.vocab_size, model.vocab_size);
  same("--rotary-base", config.rotary_base, model.rope.theta);
  same("--norm-epsilon", config.norm_epsilon, model.norm_eps);
  const int64_t longest = config.rollout_max_prompt_len.value_or(0) + config.rollout_max_response_len.value_or(0);
  if (model.max_positions > 0 && longest > model.max_positions) {
    problems.push_back(fmt::format("--rollout-max-prompt-len + --rollout-max-response-len = {}: the model has {} positions",
                                   longest, model.max_positions));
  }
  if (!problems.empty()) throw ConfigError(problems);
}

int64_t planned_rollouts(const RunConfig& config, const std::optional<buffer::Dataset>& prompts) {
  if (config.num_rollout) return *config.num_rollout;
  check(prompts.has_value(), "a run measured in epochs has a data set");
  return *config.num_epoch * (prompts->size() / config.rollout_batch_size);
}

/// A run that died before its first checkpoint starts over, and the ledger says so; so does one that goes on in another
/// folder.
std::unique_ptr<buffer::Ledger> open_ledger(const std::filesystem::path& path,
                                            const std::optional<train::Checkpoint>& checkpoint) {
  if (!std::filesystem::exists(path)) return std::make_unique<buffer::Ledger>(buffer::Ledger::create(path));
  const int64_t position = checkpoint ? checkpoint->run.at("ledger").to_number<int64_t>() : 0;
  return std::make_unique<buffer::Ledger>(buffer::Ledger::open_at(path, position));
}

/// The day that chat templates show: that on which the run began, so that a run continued later renders the same prompts.
std::chrono::local_days first_day(const std::optional<train::Checkpoint>& checkpoint, const Clock& clock) {
  const json::value* started = checkpoint ? checkpoint->run.if_contains("started") : nullptr;
  if (started != nullptr && started->is_string()) {
    if (const auto date = parse_date_text(std::string_view(started->get_string()))) return *date;
  }
  return std::chrono::floor<std::chrono::days>(local_time(clock.unix_seconds()));
}

engine::EngineConfig make_engine_config(const RunConfig& config, const ModelText& text) {
  engine::EngineConfig engine;
  engine.max_running_requests = config.sglang_max_running_requests;
  engine.max_prefill_tokens = config.sglang_chunked_prefill_size;
  engine.kv_cache_bytes = static_cast<int64_t>(config.kv_cache_gb * (int64_t{1} << 30));
  engine.context_length = config.sglang_context_length.value_or(0);
  engine.enable_prefix_cache = !config.sglang_disable_radix_cache;
  engine.seed = static_cast<uint64_t>(config.seed);
  engine.token_bytes = [tokenizer = text.tokenizer.get()](TokenId id) { return tokenizer->token_bytes(id); };
  return engine;
}

}  // namespace

TrainingRun::TrainingRun(RunConfig config, const std::vector<std::string>& warnings, const Clock& clock)
    : config_(std::move(config)), clock_(clock), folder_(config_) {
  if (config_.num_threads > 0) at::set_num_threads(static_cast<int>(config_.num_threads));
  const bool needs_engine = !config_.debug_train_only && !config_.is_supervised();

  std::vector<std::string> notes = warnings;
  const auto note = [&notes](const std::string& line) { notes.push_back(line); };
  const std::filesystem::path load_root = config_.load.empty() ? folder_.checkpoints() : std::filesystem::path(config_.load);
  checkpoint_ = train::find_checkpoint(load_root, note);
  text_ = load_model_text(config_.hf_checkpoint, config_.apply_chat_template || config_.is_supervised(),
                          first_day(checkpoint_, clock_));
  if (!config_.prompt_data.empty()) prompts_ = load_prompts(config_, text_);
  if (config_.is_supervised()) rows_.emplace(text_, config_.loss_mask_type);
  if (needs_engine && config_.eval_interval) evaluation_.emplace(config_, text_);
  num_steps_ = planned_rollouts(config_, prompts_);
  source_.emplace(prompts_ ? &*prompts_ : nullptr,
                  buffer::DataSourceConfig{.samples_per_prompt = config_.n_samples_per_prompt,
                                           .shuffle = config_.rollout_shuffle,
                                           .seed = config_.rollout_seed});
  const rollout::RolloutHooks hooks = make_hooks();  // names of rewards and filters are checked here

  const auto precision = model::Precision::of(config_.dtype);
  network_ = model::load_network(checkpoint_ ? checkpoint_->directory.string() : config_.hf_checkpoint, precision);
  check_shape(config_, network_->config());
  std::unique_ptr<model::Network> reference;
  if (config_.needs_reference()) reference = model::load_network(config_.ref_load, precision);
  if (trains()) trainer_.emplace(*network_, make_train_config(config_, num_steps_), clock_, std::move(reference));
  if (checkpoint_) {
    if (trainer_ && !config_.no_load_optim) train::restore_trainer(*checkpoint_, *trainer_, note);
    first_step_ = checkpoint_->iteration + 1;
    last_saved_ = checkpoint_->iteration;
    note(fmt::format("continuing after rollout {} of {}", checkpoint_->iteration, checkpoint_->directory.string()));
  }
  if (config_.start_rollout_id) first_step_ = *config_.start_rollout_id;
  ledger_ = open_ledger(folder_.ledger(), checkpoint_);
  if (checkpoint_) {
    const std::string where = (checkpoint_->directory / "run.json").string();
    for (const std::string& remark : source_->restore(checkpoint_->run.at("data_source").as_object(), where)) note(remark);
  }

  if (needs_engine) {
    engine_ = std::make_unique<engine::Engine>(*network_, make_engine_config(config_, text_), clock_);
    engine_->pause(engine::PauseMode::kInPlace);
    engine_->weights_changed(first_step_);
    engine_->resume();
    rollout::RolloutConfig rules{.groups_per_step = config_.rollout_batch_size,
                                 .groups_per_refill = *config_.over_sampling_batch_size,
                                 .max_concurrent_samples = config_.sglang_server_concurrency,
                                 .keeps_partial = config_.partial_rollout,
                                 .masks_older_tokens = config_.mask_offpolicy_in_partial_rollout,
                                 .reward_timeout = std::chrono::duration<double>(config_.reward_timeout_seconds)};
    rollout_ = std::make_unique<rollout::Rollout>(*engine_, rules, hooks);
  }

  folder_.remove_rollouts_from(first_step_);
  tracker_ = std::make_unique<Tracker>(folder_.root(), first_step_, clock_);
  folder_.write_run_json({{"model", config_.hf_checkpoint},
                          {"model_type", network_->config().model_type},
                          {"num_parameters", network_->weights().num_parameters()},
                          {"dtype", config_.dtype},
                          {"num_rollout", num_steps_},
                          {"loss_type", config_.loss_type},
                          {"flags", changed_flags(config_)}});
  progress_ = std::make_unique<view::Progress>(
      view::ProgressOptions{.title = folder_.root().filename().string(), .num_steps = num_steps_, .first_step = first_step_},
      view::detect_terminal(), clock_);
  for (const std::string& line : notes) progress_->message(line);
  if (prompts_ && prompts_->num_too_long() > 0) {
    progress_->message(fmt::format("{} prompts are longer than --rollout-max-prompt-len and are left out", prompts_->num_too_long()));
  }
  interrupt_.emplace();
}

rollout::RolloutHooks TrainingRun::make_hooks() {
  rollout::RolloutHooks hooks;
  hooks.take_groups = [this](int64_t count) {
    std::vector<Group> groups = source_->take(count);
    for (const Group& group : groups) note_fate({.ordinal = group.ordinal, .fate = buffer::Fate::kDispatched});
    return groups;
  };
  hooks.give_back = [this](std::vector<Group> groups) {
    for (const Group& group : groups) note_fate({.ordinal = group.ordinal, .fate = buffer::Fate::kPartial});
    source_->add(std::move(groups));
  };
  hooks.detokenize = [this](std::span<const TokenId> ids) {
    return text_.tokenizer->decode(ids, config_.rollout_skip_special_tokens);
  };
  if (!config_.rm_type.empty()) hooks.score = reward::make_reward(config_.rm_type, static_cast<uint64_t>(config_.seed));
  if (buffer::FilterFn filter = buffer::make_filter(config_.dynamic_sampling_filter_path)) {
    hooks.filter = [this, filter = std::move(filter)](const Group& group) {
      const buffer::FilterVerdict verdict = filter(group, config_.reward_key);
      return rollout::FilterVerdict{verdict.keep, verdict.reason, verdict.keep_when_insufficient};
    };
  }
  hooks.on_drop = [this](const Group& group, const std::string& reason) {
    if (reason == "failed") {
      const auto failed = std::ranges::find(group.samples, Status::kFailed, &Sample::status);
      note_fate({.ordinal = group.ordinal,
                 .fate = buffer::Fate::kFailed,
                 .reason = failed == group.samples.end() ? reason : failed->failure});
      if (failed != group.samples.end()) {
        progress_->message(fmt::format("prompt {} is left out: {}", group.ordinal, failed->failure));
      }
    } else {
      note_fate({.ordinal = group.ordinal, .fate = buffer::Fate::kFiltered, .reason = reason});
    }
  };
  hooks.on_progress = [this](int64_t, int64_t tokens) { progress_->advance(1, tokens); };
  return hooks;
}

void TrainingRun::note_fate(const buffer::LedgerRecord& record) {
  if (!config_.load_debug_rollout_data.empty()) return;  // these prompts were given out by another run
  const auto known = ledger_->state().find(record.ordinal);
  if (known != ledger_->state().end() && known->second.fate == record.fate) return;  // given out again after a restart
  ledger_->append(record);
}

bool TrainingRun::evaluates_before_training() const {
  return evaluation_ && first_step_ == 0 && !config_.skip_eval_before_train;
}

bool TrainingRun::evaluates_after(int64_t step) const {
  return evaluation_ && ((step + 1) % *config_.eval_interval == 0 || step + 1 == num_steps_) && !was_interrupted();
}

bool TrainingRun::saves_after(int64_t step) const {
  const bool is_due = config_.save_interval && (step + 1) % *config_.save_interval == 0;
  return is_due || step + 1 == num_steps_ || was_interrupted();
}

Collected TrainingRun::collect(int64_t step) {
  const auto begin = clock_.now();
  Collected collected = !config_.load_debug_rollout_data.empty() ? read_rollout(step)
                        : config_.is_supervised()                ? take_supervised()
                                                                 : generate(step);
  collected.seconds = seconds_between(begin, clock_.now());
  if (collected.groups.empty()) throw ConfigError("the data ended: no prompt is left for this step (--num-rollout is too large)");
  return collected;
}

Collected TrainingRun::generate(int64_t) {
  progress_->phase_begin("generate", "prompts", config_.rollout_batch_size);
  static const std::atomic<bool> never_stop{false};  // Ctrl-C lets the step finish
  rollout::RolloutResult result = rollout_->run(training_rules(config_), never_stop);
  Collected collected{.groups = std::move(result.groups), .generated_tokens = result.generated_tokens};
  for (const auto& [reason, count] : result.drops) {
    collected.metrics["rollout/dynamic_filter/drop_" + reason] = static_cast<double>(count);
  }
  return collected;
}

Collected TrainingRun::read_rollout(int64_t step) const {
  progress_->phase_begin("read");
  return {.groups = read_samples(numbered_path(config_.load_debug_rollout_data, step))};
}

Collected TrainingRun::take_supervised() {
  progress_->phase_begin("read");
  Collected collected;
  int64_t untrained_in_a_row = 0;
  while (static_cast<int64_t>(collected.groups.size()) < config_.rollout_batch_size) {
    if (untrained_in_a_row > prompts_->size()) {
      throw ConfigError(fmt::format("--loss-type sft_loss: none of the {} rows has a token to train on; a row is a "
                                    "conversation with an answer of the assistant (--input-key {}, --loss-mask-type {})",
                                    prompts_->size(), config_.input_key, config_.loss_mask_type));
    }
    const int64_t missing = config_.rollout_batch_size - static_cast<int64_t>(collected.groups.size());
    std::vector<Group> groups = source_->take(missing);
    if (groups.empty()) break;
    for (Group& group : groups) {
      note_fate({.ordinal = group.ordinal, .fate = buffer::Fate::kDispatched});
      if (rows_->complete(group)) {
        collected.groups.push_back(std::move(group));
        untrained_in_a_row = 0;
      } else {
        ++untrained_in_a_row;
        note_fate({.ordinal = group.ordinal, .fate = buffer::Fate::kFiltered, .reason = "no_trained_token"});
      }
    }
  }
  return collected;
}

train::TrainReport TrainingRun::train(const std::vector<Group>& groups) {
  progress_->phase_begin("train");
  if (config_.is_supervised()) {
    std::vector<Sample> samples;
    for (const Group& group : groups) samples.insert(samples.end(), group.samples.begin(), group.samples.end());
    return trainer_->train(train::make_supervised_batch(samples));
  }
  if (engine_) engine_->pause(engine::PauseMode::kRetract);
  return trainer_->train(train::make_train_batch(groups, make_batch_config(config_)));
}

void TrainingRun::publish(WeightVersion version) {
  if (!engine_) return;
  engine_->weights_changed(version);
  engine_->resume();
}

void TrainingRun::record(int64_t step, const Collected& collected, const train::TrainReport* report) {
  progress_->phase_begin("record");
  Metrics metrics = collected.metrics;
  view::StepSummary summary{.step = step};
  const bool has_rewards = !config_.is_supervised() && !collected.groups.front().samples.front().reward.is_null();
  if (has_rewards) {
    const double reward = mean_reward(collected.groups, config_.reward_key);
    metrics["rollout/raw_reward"] = reward;
    if (!first_reward_) first_reward_ = reward;
    last_reward_ = reward;
    summary.figures.emplace_back("reward", reward);
    add_metrics(metrics, sample_metrics(collected.groups, config_.reward_key, "rollout/"));
    if (config_.log_passrate) add_metrics(metrics, pass_at_k(collected.groups, config_.reward_key, "passrate/"));
  }
  if (collected.generated_tokens > 0) {
    add_metrics(metrics, rollout_speed(collected.groups, collected.seconds));
    summary.tokens_per_second = static_cast<double>(collected.generated_tokens) / collected.seconds;
    summary.figures.emplace_back("length", metrics["rollout/response_len/mean"]);
  }
  if (report != nullptr) {
    add_metrics(metrics, report->rollout);
    add_metrics(metrics, report->perf);
    for (const train::StepReport& update : report->steps) {
      add_metrics(metrics, update.metrics);
      if (!update.skipped.empty()) progress_->message(fmt::format("step {}: not updated: {}", step, update.skipped));
    }
    if (std::ranges::any_of(report->steps, [](const train::StepReport& update) { return !update.skipped.empty(); })) {
      write_samples(folder_.skipped(step), collected.groups);
      progress_->message(fmt::format("step {}: the batch is in {}", step, folder_.skipped(step).string()));
    }
    for (const Group& group : collected.groups) {
      note_fate({.ordinal = group.ordinal, .fate = buffer::Fate::kTrained, .step = step});
    }
    for (const auto& [figure, name] : {std::pair{"loss", "train/loss"}, std::pair{"kl", "train/kl_loss"},
                                       std::pair{"entropy", "train/entropy_loss"}, std::pair{"grad norm", "train/grad_norm"}}) {
      if (metrics.contains(name)) summary.figures.emplace_back(figure, metrics[name]);
    }
    if (summary.tokens_per_second == 0 && metrics.contains("perf/actor_train_tok_per_s")) {
      summary.tokens_per_second = metrics["perf/actor_train_tok_per_s"];
    }
  }
  write_rollout_files(step, collected, report);
  for (const view::PhaseTime& phase : progress_->phase_times()) metrics["phase/" + phase.name] = phase.seconds;
  metrics["perf/rss_bytes"] = resident_bytes();
  heap_trim_.after_step(metrics["perf/rss_bytes"]);
  tracker_->write(step, metrics);
  progress_->step_done(std::move(summary));
  if (report != nullptr && !report->stopped.empty()) throw ConfigError(report->stopped + "; the reasons are above");
}

void TrainingRun::write_rollout_files(int64_t step, const Collected& collected, const train::TrainReport* report) const {
  if (!config_.save_debug_rollout_data.empty()) {
    write_samples(numbered_path(config_.save_debug_rollout_data, step), collected.groups);
  }
  if (config_.no_save_rollouts || config_.is_supervised()) return;
  const auto texts = [this](const Sample& sample) {
    text::StreamDetokenizer stream(*text_.tokenizer);
    std::vector<std::string> pieces;
    for (int64_t i = sample.prompt_length; i < static_cast<int64_t>(sample.tokens.size()); ++i) {
      pieces.push_back(stream.push(sample.tokens[static_cast<std::size_t>(i)]));
    }
    return pieces;
  };
  std::map<int64_t, const std::vector<float>*> log_probs;  // by sample ordinal; the trainer keeps the order of the groups
  if (report != nullptr) {
    std::size_t i = 0;
    for (const Group& group : collected.groups) {
      for (const Sample& sample : group.samples) log_probs[sample.ordinal] = &report->log_probs.at(i++);
    }
  }
  const auto train_log_probs = [&](const Sample& sample) {
    return log_probs.contains(sample.ordinal) ? *log_probs[sample.ordinal] : std::vector<float>{};
  };
  write_samples(folder_.rollouts(step), collected.groups, {.train_log_probs = train_log_probs, .token_texts = texts});
}

void TrainingRun::evaluate(int64_t step) {
  progress_->phase_begin("evaluate", "prompts", evaluation_->num_samples() / config_.n_samples_per_eval_prompt);
  const EvalReport report = evaluation_->run(*rollout_, interrupt_->requested());
  if (report.scores.empty()) return;
  tracker_->write(std::max<int64_t>(step, 0), report.metrics);
  last_scores_.clear();
  for (const EvalScore& score : report.scores) {
    last_scores_.emplace_back(score.name, score.mean_reward);
    progress_->evaluated(score.name, score.mean_reward);
  }
  if (first_scores_.empty()) first_scores_ = last_scores_;
}

void TrainingRun::save(int64_t step) {
  progress_->phase_begin("save");
  const json::object run{{"data_source", source_->save(ledger_->in_flight())},
                         {"ledger", ledger_->commit()},
                         {"started", to_date_text(text_.today)},
                         {"weight_version", step + 1}};
  const auto directory = train::save_checkpoint({.root = folder_.checkpoints(),
                                                 .model_source = config_.hf_checkpoint,
                                                 .keep_last = config_.keep_checkpoints,
                                                 .save_optimizer = !config_.no_save_optim},
                                                step, *trainer_, run);
  folder_.set_latest(directory);
  last_saved_ = step;
}

int TrainingRun::finish(int64_t steps_done) {
  view::SummaryRows rows;
  rows.emplace_back("rollout steps", fmt::format("{} of {}", steps_done, num_steps_));
  if (first_reward_) rows.emplace_back("reward", fmt::format("{:.3f} -> {:.3f}", *first_reward_, last_reward_));
  for (std::size_t i = 0; i < last_scores_.size(); ++i) {
    rows.emplace_back(last_scores_[i].first, fmt::format("{:.3f} -> {:.3f}", first_scores_[i].second, last_scores_[i].second));
  }
  const std::string root = folder_.root().string();
  if (last_saved_) rows.emplace_back("checkpoint", fmt::format("{}/latest (rollout {})", root, *last_saved_));
  rows.emplace_back("report", fmt::format("slime report {}", root));
  if (last_saved_) rows.emplace_back("talk to it", fmt::format("slime serve --model {}/latest", root));
  progress_->finish(folder_.root().filename().string(), rows);
  return was_interrupted() ? Interrupt::kExitCode : 0;
}

}  // namespace slime::loop
