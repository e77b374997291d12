#include "loop/training_run.h"

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>

#include "buffer/filter.h"
#include "config/parse_flags.h"
#include "config/secrets.h"
#include "core/calendar.h"
#include "core/error.h"
#include "core/out_of_memory.h"
#include "kernels/gpu.h"
#include "loop/memory_needs.h"
#include "loop/networks.h"
#include "loop/periodic.h"
#include "loop/process_memory.h"
#include "loop/rollout_files.h"
#include "loop/run_history.h"
#include "loop/run_start.h"
#include "loop/scores.h"
#include "loop/start_point.h"
#include "loop/train_config.h"
#include "model/placement.h"
#include "train/checkpoint_directory.h"
#include "view/terminal.h"

namespace slime::loop {

TrainingRun::TrainingRun(config::ParsedFlags flags, const Clock& clock)
    : config_(std::move(flags.config)),
      clock_(clock),
      folder_(config_),
      trained_until_(clock.now()) {
  if (config_.num_threads > 0) at::set_num_threads(static_cast<int>(config_.num_threads));
  const bool evaluates = needs_engine() && config_.eval_interval;

  std::vector<std::string> notes = flags.warnings;
  const auto note = [&notes](const std::string& line) { notes.push_back(line); };
  StartPoint start = choose_start(config_, folder_, note);
  checkpoint_ = std::move(start.checkpoint);
  run_id_ = start.run_id;
  text_ = load_model_text(config_.hf_checkpoint, needs_template(config_, evaluates),
                          first_day(checkpoint_, clock_));
  if (config_.streaming_data) {
    stream_ = stream_prompts(config_, text_);
  } else if (!config_.prompt_data.empty()) {
    prompts_ = load_prompts(config_, text_);
  }
  if (config_.trains_on_rows()) rows_.emplace(text_, config_.loss_mask_type);
  if (evaluates) evaluation_.emplace(config_, text_);
  num_steps_ = planned_rollouts(config_, prompts_);
  const buffer::DataSourceConfig order{.samples_per_prompt = config_.n_samples_per_prompt,
                                       .shuffle = config_.rollout_shuffle,
                                       .seed = config_.rollout_seed};
  if (stream_) {
    source_.emplace(*stream_, order);
  } else {
    source_.emplace(prompts_ ? &*prompts_ : nullptr, order);
  }
  const rollout::RolloutHooks hooks =
      make_hooks();  // names of rewards and filters are checked here

  if (evaluation_)
    notes.insert(notes.end(), evaluation_->remarks().begin(), evaluation_->remarks().end());
  if (trains()) start_trainer_ranks(flags.arguments);
  const model::Precision precision = model::precision_on(config_.device, config_.dtype);
  explaining_lack_of_memory(Turn::kTrain, [&] {
    network_ = model::load_network(
        checkpoint_ ? checkpoint_->directory.string() : config_.hf_checkpoint, precision);
  });
  check_shape(config_, network_->config());
  std::optional<train::TrainConfig> trainer;
  if (trains()) {
    trainer = make_train_config(config_, num_steps_);
    trainer->frozen = frozen_names(config_, network_->weights());
    plan_memory(precision, &*trainer, false);  // what does not fit is explained
    explaining_lack_of_memory(Turn::kTrain, [&] {
      trainers_->open(*network_, *trainer, load_other_networks(config_, precision));
    });
  }
  if (checkpoint_) {
    if (trainers_ && !config_.no_load_optim) trainers_->restore(*checkpoint_, note);
    first_step_ = checkpoint_->iteration + 1;
    last_saved_ = checkpoint_->iteration;
    note(fmt::format("continuing after rollout {} of {}", checkpoint_->iteration,
                     checkpoint_->directory.string()));
  }
  if (config_.start_rollout_id) first_step_ = *config_.start_rollout_id;
  if (start.overwrites) remove_history(folder_);
  ledger_ = open_ledger(folder_.ledger(), start.is_own ? checkpoint_ : std::nullopt);
  if (checkpoint_) {
    const std::string where = (checkpoint_->directory / "run.json").string();
    for (const std::string& remark :
         source_->restore(checkpoint_->run.at("data_source").as_object(), where))
      note(remark);
  }

  plan_memory(precision, trainer ? &*trainer : nullptr, trainer.has_value());
  for (const std::string& line : memory_->lines()) note(line);
  takes_turns_ = memory_->takes_turns();
  if (needs_engine()) {
    if (takes_turns_) release_trainer_memory();
    explaining_lack_of_memory(Turn::kGenerate, [&] {
      engine_ = std::make_unique<engine::Engine>(
          *network_, make_engine_config(config_, text_, memory_->kv_cache_bytes()), clock_);
    });
    engine::or_throw(engine_->pause(engine::PauseMode::kInPlace));
    engine::or_throw(engine_->update_weights({.version = first_step_}));
    engine::or_throw(engine_->resume());
    rollout::RolloutConfig rules{.groups_per_step = config_.rollout_batch_size,
                                 .groups_per_refill = *config_.over_sampling_batch_size,
                                 .max_concurrent_samples = config_.sglang_server_concurrency,
                                 .num_slots = std::min(config_.sglang_server_concurrency,
                                                       config_.sglang_max_running_requests),
                                 .keeps_partial = config_.partial_rollout,
                                 .masks_older_tokens = config_.mask_offpolicy_in_partial_rollout,
                                 .reward_timeout = reward_deadline(config_),
                                 .reward_threads = num_reward_threads(config_)};
    rollout_ = std::make_unique<rollout::Rollout>(*engine_, rules, hooks);
  }

  folder_.remove_rollouts_from(first_step_);
  tracker_ = std::make_unique<Tracker>(folder_.root(), first_step_, clock_);
  const json::object run{{"run_id", run_id_},
                         {"model", config_.hf_checkpoint},
                         {"model_type", network_->config().model_type},
                         {"num_parameters", network_->weights().num_parameters()},
                         {"dtype", config_.dtype},
                         {"num_rollout", num_steps_},
                         {"loss_type", config_.loss_type},
                         {"flags", config::changed_flags(config_)},
                         {"unknown_flags", config::without_secrets(flags.unknown)}};
  folder_.write_run_json(run);
  if (config_.use_wandb)
    wandb_ = std::make_unique<WandbProcess>(config_, folder_.root().string(), run);
  progress_ = std::make_unique<view::Progress>(
      view::ProgressOptions{.title = folder_.root().filename().string(),
                            .num_steps = num_steps_,
                            .first_step = first_step_},
      view::detect_terminal(), clock_);
  for (const std::string& line : notes) progress_->message(line);
  if (prompts_ && prompts_->num_too_long() > 0) {
    progress_->message(
        fmt::format("{} prompts are longer than --rollout-max-prompt-len and are left out",
                    prompts_->num_too_long()));
  }
  if (config_.profile) {
    if (config_.profile_step_start >= num_steps_)
      progress_->message(
          fmt::format("--profile: the run has {} rollouts, --profile-step-start is {}", num_steps_,
                      config_.profile_step_start));
    profiler_.emplace(folder_.root() / "trace.json", config_.profile_step_start,
                      config_.profile_step_end, network_->weights().flat().is_cuda());
  }
  interrupt_.emplace();
}

void TrainingRun::plan_memory(const model::Precision& precision, const train::TrainConfig* trainer,
                              bool is_taken) {
  const MemoryNeeds needs = memory_needs(config_, *network_, precision, trainer, needs_engine(),
                                         prompts_ ? prompts_->longest_prompt() : 0);
  if (is_on_gpu()) {
    kernels::opened_gpu().release_unused_memory();
    memory_.emplace(config_, needs, kernels::opened_gpu().memory_use());
  } else {
    const int64_t in_tensors = is_taken ? needs.train.resident() : needs.train.weights;
    memory_.emplace(config_, needs, host_memory(), in_tensors);
  }
}

void TrainingRun::release_trainer_memory() {
  if (trainers_) trainers_->release_memory();
  if (is_on_gpu()) kernels::opened_gpu().release_unused_memory();
}

void TrainingRun::start_trainer_ranks(const std::vector<std::string>& arguments) {
  RankStart start{.arguments = config::without_secrets(arguments), .num_rollouts = num_steps_};
  if (checkpoint_) {
    start.checkpoint = checkpoint_->directory.string();
    start.iteration = checkpoint_->iteration;
    start.loads_optimizer = !config_.no_load_optim;
  }
  trainers_ = start_trainers(config_, std::move(start), folder_.worker_logs(), clock_);
}

rollout::RolloutHooks TrainingRun::make_hooks() {
  rollout::RolloutHooks hooks;
  hooks.take_groups = [this](int64_t count) {
    std::vector<Group> groups = source_->take(count);
    for (const Group& group : groups)
      note_fate({.ordinal = group.ordinal, .fate = buffer::Fate::kDispatched});
    return groups;
  };
  hooks.give_back = [this](std::vector<Group> groups) {
    for (const Group& group : groups)
      note_fate({.ordinal = group.ordinal, .fate = buffer::Fate::kPartial});
    source_->add(std::move(groups));
  };
  hooks.detokenize = [this](std::span<const TokenId> ids) {
    return text_.tokenizer->decode(ids, config_.rollout_skip_special_tokens);
  };
  hooks.score = make_score(config_);
  if (buffer::FilterFn filter = buffer::make_filter(config_.dynamic_sampling_filter_path)) {
    hooks.filter = [this, filter = std::move(filter)](const Group& group) {
      return filter(group, config_.reward_key);
    };
  }
  hooks.on_drop = [this](const Group& group, const std::string& reason) {
    if (reason == "failed") {
      const auto failed = std::ranges::find(group.samples, Status::kFailed, &Sample::status);
      const std::string why =
          failed == group.samples.end() ? reason : config::without_passwords(failed->failure);
      note_fate({.ordinal = group.ordinal, .fate = buffer::Fate::kFailed, .reason = why});
      if (failed != group.samples.end())
        progress_->message(fmt::format("prompt {} is left out: {}", group.ordinal, why));
    } else {
      note_fate({.ordinal = group.ordinal, .fate = buffer::Fate::kFiltered, .reason = reason});
    }
  };
  hooks.on_progress = [this](int64_t groups_done, int64_t tokens) {
    progress_->reached(groups_done, tokens);
  };
  return hooks;
}

void TrainingRun::note_fate(const buffer::LedgerRecord& record) {
  if (!config_.load_debug_rollout_data.empty())
    return;  // these prompts were given out by another run
  const auto known = ledger_->state().find(record.ordinal);
  if (known != ledger_->state().end() && known->second.fate == record.fate)
    return;  // given out again after a restart
  ledger_->append(record);
}

bool TrainingRun::evaluates_before_training() const {
  return evaluation_ && first_step_ == 0 && !config_.skip_eval_before_train;
}

std::optional<int64_t> TrainingRun::rollouts_per_epoch() const {
  if (config_.num_rollout || !prompts_) return std::nullopt;
  return prompts_->size() / config_.rollout_batch_size;
}

bool TrainingRun::evaluates_after(int64_t step) const {
  const Period period{config_.eval_interval, rollouts_per_epoch(), num_steps_};
  return evaluation_ && is_due(step, period) && !was_interrupted();
}

bool TrainingRun::saves_after(int64_t step) const {
  // The last one is saved with or without an interval.
  return is_due(step, {config_.save_interval, rollouts_per_epoch(), num_steps_}) ||
         step + 1 == num_steps_ || was_interrupted();
}

/// Of a GPU: pages of the cache, and what LibTorch's allocator and the libraries took.
int64_t TrainingRun::peak_memory() const {
  if (!is_on_gpu()) return static_cast<int64_t>(peak_resident_bytes());
  const kernels::GpuMemoryUse use = kernels::opened_gpu().memory_use();
  return use.elsewhere() + use.mapped + use.peak_kept;
}

int64_t TrainingRun::memory_now() const {
  if (!is_on_gpu()) return static_cast<int64_t>(resident_bytes());
  const kernels::GpuMemoryUse use = kernels::opened_gpu().memory_use();
  return use.total - use.free;
}

void TrainingRun::reset_peak_memory() const {
  if (is_on_gpu()) {
    kernels::opened_gpu().reset_peak_memory();
  } else {
    reset_peak_resident();
  }
}

kernels::TraceRange TrainingRun::phase(const char* name, std::string_view unit,
                                       int64_t total) const {
  progress_->phase_begin(name, unit, total);
  return kernels::TraceRange(name);
}

void TrainingRun::announce_trace(const std::optional<std::filesystem::path>& file) {
  if (file) progress_->message(fmt::format("trace: {} (opens in ui.perfetto.dev)", file->string()));
}

Collected TrainingRun::collect(int64_t step) {
  if (profiler_) announce_trace(profiler_->before_step(step));
  reset_peak_memory();
  const auto begin = clock_.now();
  Collected collected = !config_.load_debug_rollout_data.empty() ? read_rollout(step)
                        : config_.trains_on_rows()               ? take_rows()
                                                                 : generate(step);
  collected.seconds = seconds_between(begin, clock_.now());
  if (engine_) rollout_peak_ = peak_memory();
  if (collected.groups.empty())
    throw ConfigError(
        "the data ended: no prompt is left for this step (--num-rollout is too large)");
  return collected;
}

Collected TrainingRun::generate(int64_t) {
  const auto range = phase("generate", "prompts", config_.rollout_batch_size);
  // Ctrl-C lets the step finish; a rank that is lost does not.
  static const std::atomic<bool> never_stop{false};
  rollout::RolloutResult result;
  explaining_lack_of_memory(Turn::kGenerate, [&] {
    result =
        rollout_->run(training_rules(config_), trainers_ ? trainers_->has_failed() : never_stop);
  });
  if (trainers_) trainers_->check_alive();
  take_teacher_scores(result.groups);
  Collected collected{.groups = std::move(result.groups),
                      .generated_tokens = result.generated_tokens};
  for (const auto& [reason, count] : result.drops) {
    collected.metrics["rollout/dynamic_filter/drop_" + reason] = static_cast<double>(count);
  }
  collected.metrics["perf/discarded_tokens"] = static_cast<double>(result.discarded_tokens);
  return collected;
}

Collected TrainingRun::read_rollout(int64_t step) const {
  const auto range = phase("read");
  std::vector<Group> groups = read_samples(numbered_path(config_.load_debug_rollout_data, step));
  const double kept =
      config_.load_debug_rollout_data_subsample * static_cast<double>(groups.size());
  groups.resize(std::max<std::size_t>(1, static_cast<std::size_t>(kept)));
  return {.groups = std::move(groups)};
}

Collected TrainingRun::take_rows() {
  const auto range = phase("read");
  Collected collected;
  int64_t untrained_in_a_row = 0;
  while (static_cast<int64_t>(collected.groups.size()) < config_.rollout_batch_size) {
    const std::optional<int64_t> rows = source_->prompts_per_epoch();
    if (rows && untrained_in_a_row > *rows) {
      throw ConfigError(fmt::format(
          "--loss-type {}: none of the {} rows has a token to train on; a row is a conversation "
          "with an "
          "answer of the assistant (--input-key {}, --loss-mask-type {})",
          config_.loss_type, *rows, config_.input_key, config_.loss_mask_type));
    }
    const int64_t missing =
        config_.rollout_batch_size - static_cast<int64_t>(collected.groups.size());
    std::vector<Group> groups = source_->take(missing);
    if (groups.empty()) break;
    for (Group& group : groups) {
      note_fate({.ordinal = group.ordinal, .fate = buffer::Fate::kDispatched});
      const bool is_complete =
          config_.is_preference()
              ? rows_->complete_pair(group, config_.chosen_key, config_.rejected_key)
              : rows_->complete(group);
      if (is_complete) {
        collected.groups.push_back(std::move(group));
        untrained_in_a_row = 0;
      } else {
        ++untrained_in_a_row;
        note_fate({.ordinal = group.ordinal,
                   .fate = buffer::Fate::kFiltered,
                   .reason = "no_trained_token"});
      }
    }
  }
  return collected;
}

train::TrainBatch TrainingRun::make_batch(const std::vector<Group>& groups) const {
  if (config_.is_preference()) return train::make_preference_batch(groups);
  if (!config_.is_supervised()) return train::make_train_batch(groups, make_batch_config(config_));
  std::vector<Sample> samples;
  for (const Group& group : groups)
    samples.insert(samples.end(), group.samples.begin(), group.samples.end());
  return train::make_supervised_batch(samples);
}

train::TrainReport TrainingRun::train(const std::vector<Group>& groups) {
  const auto range = phase("train");
  reset_peak_memory();
  if (engine_) {
    engine::or_throw(engine_->pause(engine::PauseMode::kRetract));
    if (takes_turns_) engine::or_throw(engine_->sleep());
  }
  train::TrainReport report;
  explaining_lack_of_memory(Turn::kTrain, [&] { report = trainers_->train(make_batch(groups)); });
  train_peak_ = peak_memory();
  return report;
}

void TrainingRun::explaining_lack_of_memory(Turn turn, const std::function<void()>& work) const {
  try {
    work();
  } catch (const std::exception& error) {
    if (!is_out_of_memory(error)) throw;
    const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
    const std::string said =
        torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
    if (!memory_)
      throw ConfigError(fmt::format("the weights of {} do not fit into the memory that is free: {}",
                                    config_.hf_checkpoint, said));
    std::string text = memory_->explain(turn, said);
    if (last_saved_)
      text += fmt::format(
          "\nThe checkpoint of rollout {} in {} is complete; the same command goes "
          "on from there.",
          *last_saved_, folder_.checkpoints().string());
    throw ConfigError(text);
  }
}

void TrainingRun::publish(WeightVersion version) {
  const auto range = phase("publish");
  trainers_->weights_published();
  if (!engine_) return;
  engine::or_throw(engine_->update_weights({.version = version}));
  if (takes_turns_) {
    release_trainer_memory();
    explaining_lack_of_memory(Turn::kGenerate, [this] { engine::or_throw(engine_->wake()); });
  }
  engine::or_throw(engine_->resume());
}

void TrainingRun::evaluate(int64_t step) {
  const auto range = phase("evaluate", "prompts", evaluation_->num_prompts());
  EvalReport report;
  explaining_lack_of_memory(Turn::kGenerate,
                            [&] { report = evaluation_->run(*rollout_, interrupt_->requested()); });
  for (const std::string& remark : report.remarks) progress_->message(remark);
  if (report.scores.empty()) return;
  write_metrics(std::max<int64_t>(step, 0), report.metrics);
  last_scores_.clear();
  for (const EvalScore& score : report.scores) {
    last_scores_.emplace_back(score.name, score.mean_reward);
    progress_->evaluated(score.name, score.mean_reward);
  }
  if (first_scores_.empty()) first_scores_ = last_scores_;
}

void TrainingRun::save(int64_t step) {
  const auto range = phase("save");
  const json::object run{{"data_source", source_->save(ledger_->in_flight())},
                         {"ledger", ledger_->commit()},
                         {"started", to_date_text(text_.today)},
                         {"weight_version", step + 1},
                         {"run_id", run_id_}};
  const std::filesystem::path directory =
      trainers_->save({.root = folder_.checkpoints(),
                       .model_source = config_.hf_checkpoint,
                       .save_optimizer = !config_.no_save_optim},
                      step, run);
  // In this order `latest` names a checkpoint that is there, whenever the process dies.
  folder_.set_latest(directory);
  train::remove_old_checkpoints(folder_.checkpoints(), config_.keep_checkpoints, directory);
  last_saved_ = step;
}

int TrainingRun::finish(int64_t steps_done) {
  if (profiler_) announce_trace(profiler_->after_last_step());
  view::SummaryRows rows;
  rows.emplace_back("rollout steps", fmt::format("{} of {}", steps_done, num_steps_));
  if (first_reward_)
    rows.emplace_back("reward", fmt::format("{:.3f} -> {:.3f}", *first_reward_, last_reward_));
  for (std::size_t i = 0; i < last_scores_.size(); ++i) {
    rows.emplace_back(
        last_scores_[i].first,
        fmt::format("{:.3f} -> {:.3f}", first_scores_[i].second, last_scores_[i].second));
  }
  const std::string root = folder_.root().string();
  if (last_saved_)
    rows.emplace_back("checkpoint", fmt::format("{}/latest (rollout {})", root, *last_saved_));
  rows.emplace_back("report", fmt::format("slime report {}", root));
  if (last_saved_)
    rows.emplace_back("talk to it", fmt::format("slime serve --model {}/latest", root));
  progress_->finish(folder_.root().filename().string(), rows);
  return was_interrupted() ? Interrupt::kExitCode : 0;
}

}  // namespace slime::loop
