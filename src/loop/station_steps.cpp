#include "loop/station_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>

#include "core/error.h"
#include "core/sampled_tokens.h"
#include "loop/accepted_samples.h"
#include "loop/async_loop.h"
#include "loop/run_networks.h"
#include "loop/shared_base.h"
#include "loop/step_abandoned.h"
#include "loop/sync_loop.h"
#include "report/training_outcomes.h"
#include "roles/networks.h"
#include "roles/update_check.h"
#include "setup/flush_rule.h"

namespace slime::loop {
void StationSteps::start_stream(WeightVersion version) {
  run_.source->start_stream(run_.course.schedule, version);
}

report::Collected StationSteps::collect(int64_t step) {
  run_.recorder().begin_step(step);
  step_ = step;
  run_.records.memory.begin_phase();
  run_.plugins->set_rollout_id(step);
  const auto begin = run_.launch.clock.now();
  keep_boundary();
  go_on_unpublished();
  report::Collected collected = run_.source->take(step);
  const auto end = run_.launch.clock.now();
  const Clock::TimePoint since = run_.source->is_ahead() ? collected_until_.value_or(begin) : begin;
  collected.seconds = seconds_between(since, end);
  collected_until_ = end;
  if (run_.source->draws()) run_.records.memory.end_phase(estimate::Phase::kGenerate);
  if (run_.source->draws() && num_unpublished_ > 0) {
    collected.metrics["rollout/weight_version/behind_trainer"] =
        static_cast<double>(num_unpublished_);
  }
  if (boundary_ && is_interrupted()) throw StepAbandoned();
  if (collected.groups.empty() || collected.data_ended) {
    abandon(collected.groups);
    throw ConfigError(fmt::format(
        "the data ended: {} of the {} prompts of rollout step {} are left (--num-rollout is too "
        "large: {} rollout steps are trained)",
        collected.groups.size(), run_.config.rollout_batch_size, step, step));
  }
  if (run_.data.unsaved) run_.data.unsaved->keep(step, collected);
  if (run_.config.imitates_samples) {
    report::add_metrics(collected.metrics,
                        reject_others(collected.groups, acceptance_of(run_.config)));
  }
  if (last_has_flushed_ && run_.config.train_async && run_.config.flush_cache_interval != 1)
    collected.metrics["rollout/engine/update_flushed"] = *last_has_flushed_ ? 1 : 0;
  collected.is_logged = run_.plugins->of_steps().log_rollout(step, collected);
  collected.logged = run_.plugins->take_logged();
  return collected;
}

void StationSteps::begin() {
  if (run_.config.generates()) first_version_ = version();
  check_update();
}

bool StationSteps::flushes(WeightVersion version) const {
  const int64_t interval = run_.config.flush_cache_interval;
  return run_.config.train_async && interval != 1 &&
         setup::flushes_cache(interval, version, first_version_);
}

/// Who says when weights are published may also say that they are not.
void StationSteps::go_on_unpublished() {
  if (!stand_still_ || run_.config.shares_weights()) return;
  if (run_.records.memory.plan().offloads()) run_.topology.trainers->release_memory();
  handover().go_on();
  stand_still_ = false;
}

roles::Handover StationSteps::handover() const {
  return {.engines = *run_.topology.engines,
          .stream = run_.source->stream(),
          .takes_turns = run_.config.takes_turns(),
          .update_mode = run_.config.update_mode};
}

/// Groups that were collected and are not trained: a checkpoint that follows accounts for them.
void StationSteps::abandon(const std::vector<Group>& groups) {
  if (boundary_ || run_.source->abandon(groups)) return;  // they are collected again
  for (const Group& group : groups)
    run_.data.outcomes->discarded(group.ordinal, num_sampled_tokens(group));
}

train::TrainReport StationSteps::train_on(const std::vector<Group>& groups) {
  try {
    return train_whole(groups);
  } catch (...) {
    if (trained_ != step_ && !is_between_) abandon(groups);
    throw;
  }
}

/// Of runs over one base one trains at a time. The wait for that is a phase of its own.
std::unique_ptr<TicketLock::Hold> StationSteps::lock_trainer() {
  if (run_.topology.shared == nullptr) return nullptr;
  const auto waits = run_.recorder().phase("trainer_wait");
  auto hold = std::make_unique<TicketLock::Hold>(run_.topology.shared->trainer_lock());
  const auto goes_on = run_.recorder().phase("train");
  return hold;
}

train::TrainReport StationSteps::train_whole(const std::vector<Group>& groups) {
  const auto range = run_.recorder().phase("train");
  run_.records.memory.begin_phase();
  handover().before_training();
  stand_still_ = true;
  train::TrainBatch batch = run_.plugins->of_batches().make_batch(groups);
  batch.version = version();
  run_.source->batch_is_made();
  train::TrainReport report;
  const std::optional<int64_t> changes = run_.topology.trainers->num_changes();
  const auto train = [&] {
    const std::unique_ptr<TicketLock::Hold> hold = lock_trainer();
    run_.records.memory.explain_shortage(estimate::Phase::kTrain,
                                         [&] { report = run_.topology.trainers->train(batch); });
  };
  is_between_ = true;
  try {
    run_.source->while_training(train);
  } catch (...) {
    is_between_ = !changes || run_.topology.trainers->num_changes() != changes;
    throw;
  }
  run_.data.outcomes->trained(report::training_outcomes(groups, report, step_));
  boundary_.reset();
  trained_ = step_;
  is_between_ = false;
  is_published_ = false;
  ++num_unpublished_;
  run_.records.memory.end_phase(estimate::Phase::kTrain);
  return report;
}

void StationSteps::skip(const std::vector<Group>& groups) {
  std::vector<buffer::LedgerRecord> ends;
  for (const Group& group : groups) {
    ends.push_back({.ordinal = group.ordinal,
                    .outcome = buffer::Outcome::kFiltered,
                    .reason = "dropped_by_the_loop",
                    .tokens = num_sampled_tokens(group)});
  }
  run_.data.outcomes->trained(ends);
  boundary_.reset();
  trained_ = step_;
}

void StationSteps::keep_boundary() {
  boundary_.reset();
  // A stream goes on all the time: it is saved as it is.
  if (!trains(run_.config) || run_.config.train_async || !run_.data.origin->can_go_back()) return;
  boundary_.emplace(
      StepBoundary{run_.data.prompts(), run_.data.outcomes->mark(), run_.source->between_steps()});
}

void StationSteps::count_untrained(const std::vector<Group>& groups) {
  const auto trains_token = [](const Sample& sample) {
    return !sample.remove_sample && sample.response_length() > 0 &&
           (sample.loss_mask.empty() || std::ranges::find_if(sample.loss_mask, [](auto mask) {
                                          return mask != 0;
                                        }) != sample.loss_mask.end());
  };
  const bool is_trained = std::ranges::any_of(
      groups, [&](const Group& group) { return std::ranges::any_of(group.samples, trains_token); });
  untrained_in_a_row_ = is_trained ? 0 : untrained_in_a_row_ + 1;
  const int64_t most = run_.config.max_untrained_steps;
  if (most == 0 || untrained_in_a_row_ <= most) return;
  throw ConfigError(fmt::format(
      "{} rollout steps in a row had no token to train on: all samples are masked, removed or "
      "empty (--max-untrained-steps {})",
      untrained_in_a_row_, most));
}

void StationSteps::publish(WeightVersion version) {
  const auto range = run_.recorder().phase("publish");
  // After Ctrl-C nobody needs what it draws: its prompts are where the checkpoint has them.
  if (run_.config.update_mode == "drain") run_.source->wait(run_.interrupt->requested());
  run_.topology.trainers->weights_published();
  if (run_.records.memory.plan().offloads()) run_.topology.trainers->release_memory();
  const auto tell = [&](std::string_view moment) {
    run_.plugins->of_steps().at_weight_update(moment, step_, version);
  };
  tell("before_weight_update");
  roles::Handover update = handover();
  last_has_flushed_ = flushes(version);
  if (*last_has_flushed_) update.update_mode = "interrupt";
  update.publish(version,
                 [this](model::Network& own) { run_.topology.trainers->gather_weights(own); });
  tell("after_weight_update");
  is_published_ = true;
  stand_still_ = false;
  num_unpublished_ = 0;
  check_update();
}

/// Those that the engines begin with, and the first that were trained.
void StationSteps::check_update() {
  constexpr int kChecked = 2;
  if (!run_.config.check_weight_update_equal || num_checked_updates_ >= kChecked) return;
  if (!trains(run_.config) || !run_.config.generates()) return;
  ++num_checked_updates_;
  const WeightChecksums trained =
      run_.topology.trainers->weight_checksums(roles::engine_matrices(run_.config));
  const auto engines =
      run_.topology.engines->client().check_weights(engine::WeightCheck::kChecksum);
  roles::require_same_weights(trained, engines);
  run_.recorder().message(
      fmt::format("--check-weight-update-equal: {} tensors are the same in trainer "
                  "and engines, version {}, checksum {:016x}",
                  trained.size(), version(), combined(*engines)));
}

void StationSteps::end_step(int64_t step, const report::Collected& collected,
                            const train::TrainReport* report) {
  run_.recorder().end_step(step, collected, report);
  run_.course.last_step = step;
  run_.evaluator->take(/*waits=*/false);
  if (report != nullptr) count_untrained(collected.groups);
}

void StationSteps::evaluate(int64_t step) {
  run_.plugins->set_rollout_id(std::max<int64_t>(step, 0));
  go_on_unpublished();
  run_.evaluator->evaluate(step);
}

void StationSteps::save(int64_t step) {
  // A class of the user's saves behind what its host is at.
  if (!run_.data.origin->can_go_back()) run_.source->wait(run_.topology.trainers->has_failed());
  check(step == trained_, "what is saved is what was trained last");
  is_saving_ = true;
  run_.checkpoints->save(step, is_published_, boundary_);
  if (run_.data.unsaved) run_.data.unsaved->saved(step);
  is_saving_ = false;
  saved_ = step;
}

void StationSteps::save_unsaved() {
  if (trains(run_.config) && trained_ > saved_) save(trained_);
}

void StationSteps::rescue() {
  if (!trains(run_.config) || run_.topology.trainers->has_failed() || is_saving_) return;
  try {
    if (is_between_) {
      run_.recorder().message(fmt::format(
          "training of rollout step {} came to no end: its weights are not saved", step_));
    } else if (trained_ > saved_) {
      save(trained_);
      run_.recorder().message(
          fmt::format("rollout step {} was trained before the error, and is saved", trained_));
    }
  } catch (const std::exception& error) {
    run_.recorder().message(
        fmt::format("rollout step {} could not be saved: {}", trained_, error.what()));
  }
}

void StationSteps::finish(int64_t step) {
  save_unsaved();
  run_.evaluator->take(/*waits=*/true);
  run_.recorder().finish(step, is_interrupted());
  run_.records.folder.note_end(is_interrupted() ? "interrupted" : "finished");
}

int run_steps(Stations& run, const std::function<void(StationSteps&)>& loop) {
  StationSteps steps(run);
  steps.begin();
  try {
    loop(steps);
  } catch (const StepAbandoned&) {
    steps.finish(std::max(run.course.schedule.first_step, run.course.last_step + 1));
  } catch (const std::exception& error) {
    steps.rescue();
    run.records.folder.note_end("failed", error.what());
    throw;
  }
  if (run.topology.session) run.topology.session->end_with_run();
  return run.interrupt->exit_code();
}

int run_loop(Stations& run) {
  return run_steps(run, [&run](StationSteps& steps) {
    if (run.config.train_async) {
      train_async(steps, run.course.schedule);
    } else if (run.config.debug_rollout_only) {
      generate_only(steps, run.course.schedule);
    } else {
      train_sync(steps, run.course.schedule);
    }
  });
}

}  // namespace slime::loop
