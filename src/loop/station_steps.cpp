#include "loop/station_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>

#include "config/users_functions.h"
#include "core/drawn_tokens.h"
#include "core/error.h"
#include "loop/async_loop.h"
#include "loop/prompt_answers.h"
#include "loop/run_networks.h"
#include "loop/step_abandoned.h"
#include "loop/sync_loop.h"
#include "report/training_fates.h"
#include "roles/update_check.h"
#include "setup/train_config.h"

namespace slime::loop {
namespace {

constexpr const char* kBrokenOff =
    "the evaluation was broken off; a run that goes on from here makes it again";

}  // namespace

void StationSteps::start_stream(WeightVersion version) {
  if (run_.ahead) return run_.ahead->begin(run_.schedule.first_step);
  run_.rollout->start_stream(run_.schedule, version);
}

report::Collected StationSteps::collect(int64_t step) {
  run_.recorder->begin_step(step);
  step_ = step;
  run_.memory.begin_phase();
  if (run_.plugins) run_.plugins->set_rollout_id(step);
  const auto begin = run_.clock.now();
  keep_boundary();
  report::Collected collected = run_.source().take(step);
  const auto end = run_.clock.now();
  const bool streams = run_.ahead || (run_.rollout && run_.rollout->streams());
  // A stream generates between two calls as well.
  collected.seconds = seconds_between(streams ? collected_until_.value_or(begin) : begin, end);
  collected_until_ = end;
  if (run_.rollout) run_.memory.end_phase(estimate::Phase::kGenerate);
  if (boundary_ && is_interrupted()) throw StepAbandoned();
  if (collected.groups.empty() || collected.data_ended) {
    abandon(collected.groups);
    throw ConfigError(fmt::format(
        "the data ended: {} of the {} prompts of rollout step {} are left (--num-rollout is too "
        "large: {} rollout steps are trained)",
        collected.groups.size(), run_.config.rollout_batch_size, step, step));
  }
  if (run_.plugins) collected.is_logged = run_.plugins->of_steps().log_rollout(step, collected);
  return collected;
}

roles::Handover StationSteps::handover() const {
  const bool streams = run_.rollout && run_.rollout->streams();
  return {.engines = run_.engines(),
          .stream = streams ? &run_.rollout->rollout() : nullptr,
          .shares_weights = run_.config.shares_weights(),
          .update_mode = run_.config.update_mode};
}

/// Groups that were collected and are not trained: a checkpoint that follows accounts for them.
void StationSteps::abandon(const std::vector<Group>& groups) {
  if (boundary_) return;  // they are collected again
  if (run_.rollout && !run_.function) return run_.rollout->abandon(groups);
  for (const Group& group : groups) run_.fates->discarded(group.ordinal, num_drawn_tokens(group));
}

train::TrainReport StationSteps::train_on(const std::vector<Group>& groups) {
  try {
    return train_whole(groups);
  } catch (...) {
    if (trained_ != step_ && !is_between_) abandon(groups);
    throw;
  }
}

train::TrainReport StationSteps::train_whole(const std::vector<Group>& groups) {
  const auto range = run_.recorder->phase("train");
  run_.memory.begin_phase();
  handover().before_training();
  const train::TrainBatch batch = run_.plugins ? run_.plugins->of_batches().make_batch(groups)
                                               : setup::make_batch(groups, run_.config);
  if (run_.ahead) run_.ahead->begin_next();
  train::TrainReport report;
  const std::optional<int64_t> changes = run_.trainers->num_changes();
  const auto train = [&] {
    run_.memory.explain_shortage(estimate::Phase::kTrain,
                                 [&] { report = run_.trainers->train(batch); });
  };
  is_between_ = true;
  try {
    run_.rollout ? run_.rollout->while_training(train) : train();
  } catch (...) {
    is_between_ = !changes || run_.trainers->num_changes() != changes;
    throw;
  }
  run_.fates->trained(report::training_fates(groups, report, step_));
  boundary_.reset();
  trained_ = step_;
  is_between_ = false;
  is_published_ = false;
  run_.memory.end_phase(estimate::Phase::kTrain);
  return report;
}

void StationSteps::keep_boundary() {
  boundary_.reset();
  // A stream goes on all the time, and what a class of the user's gave out stays given out; both are
  // saved as they are.
  if (!trains(run_.config) || run_.config.train_async || run_.users_prompts) return;
  rollout::Snapshot tokens;
  if (run_.rollout) {
    const rollout::Rollout::Lease lease(run_.rollout->rollout());
    tokens = lease.snapshot();
  }
  boundary_.emplace(StepBoundary{*run_.prompts, run_.fates->mark(), std::move(tokens)});
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
  const auto range = run_.recorder->phase("publish");
  // After Ctrl-C nobody needs what it draws: its prompts are where the checkpoint has them.
  if (run_.ahead && run_.config.update_mode == "drain")
    run_.ahead->wait(run_.interrupt->requested());
  run_.trainers->weights_published();
  if (run_.memory.plan().offloads()) run_.trainers->release_memory();
  const auto tell = [&](std::string_view moment) {
    if (run_.plugins) run_.plugins->of_steps().at_weight_update(moment, step_, version);
  };
  tell("before_weight_update");
  handover().publish(version, [this](model::Network& own) { run_.trainers->gather_weights(own); });
  tell("after_weight_update");
  is_published_ = true;
  check_update();
}

/// Those that the engines begin with, and the first that were trained.
void StationSteps::check_update() {
  constexpr int kChecked = 2;
  if (!run_.config.check_weight_update_equal || num_checked_updates_ >= kChecked) return;
  if (!trains(run_.config) || !run_.config.generates()) return;
  ++num_checked_updates_;
  const WeightChecksums trained = run_.trainers->weight_checksums();
  const auto engines = run_.engines().client().check_weights(engine::WeightCheck::kChecksum);
  roles::require_same_weights(trained, engines);
  run_.recorder->message(
      fmt::format("--check-weight-update-equal: {} tensors are the same in trainer "
                  "and engines, version {}, checksum {:016x}",
                  trained.size(), version(), combined(*engines)));
}

void StationSteps::end_step(int64_t step, const report::Collected& collected,
                            const train::TrainReport* report) {
  run_.recorder->end_step(step, collected, report);
  run_.last_step = step;
  take_evaluation(/*waits=*/false);
  if (report != nullptr) count_untrained(collected.groups);
}

void StationSteps::evaluate(int64_t step) {
  if (run_.plugins) run_.plugins->set_rollout_id(std::max<int64_t>(step, 0));
  if (run_.row_evaluation) return evaluate_rows(step);
  if (run_.beside != nullptr) return evaluate_beside(step);
  if (run_.ahead) run_.ahead->wait(run_.interrupt->requested());
  if (run_.ahead && is_interrupted()) return;
  if (config::has_users_evaluation(run_.config)) return evaluate_by_function(step);
  const auto range = run_.recorder->phase("evaluate", "prompts", run_.evaluation->num_prompts());
  report::EvalReport report;
  run_.memory.explain_shortage(estimate::Phase::kGenerate, [&] {
    report = run_.evaluation->run(run_.rollout->rollout(), run_.interrupt->requested());
  });
  if (is_interrupted()) return run_.recorder->message(kBrokenOff);
  if (run_.plugins) report.is_logged = run_.plugins->of_steps().log_evaluation(step, report);
  run_.recorder->evaluated(step, report);
}

void StationSteps::evaluate_rows(int64_t step) {
  const auto range = run_.recorder->phase("evaluate", "rows", run_.row_evaluation->num_rows());
  report::EvalReport report;
  run_.memory.explain_shortage(estimate::Phase::kTrain, [&] {
    report = run_.row_evaluation->run(*run_.trainers, run_.interrupt->requested());
  });
  if (is_interrupted()) return run_.recorder->message(kBrokenOff);
  run_.recorder->evaluated(step, report);
}

void StationSteps::evaluate_by_function(int64_t step) {
  const auto range = run_.recorder->phase("evaluate");
  report::EvalReport report;
  PromptAnswers prompts(*run_.prompts, *run_.fates, PromptAnswers::Draws::kTokens,
                        run_.plugins->limits(/*is_evaluation=*/true));
  plugin::QuestionDesk::AnswerPrompts answer;  // a stream has buffer and ledger for itself
  if (!run_.rollout->streams())
    answer = [&prompts](const plugin::Question& question) { return prompts.answer(question); };
  try {
    run_.memory.explain_shortage(estimate::Phase::kGenerate, [&] {
      report = run_.plugins->of_rollouts().evaluate(
          step, answer, StopFlags(run_.trainers->has_failed(), run_.interrupt->requested()));
    });
  } catch (...) {
    run_.trainers->check_alive();
    if (is_interrupted()) throw StepAbandoned();
    throw;
  }
  prompts.end("taken by the evaluation function");
  report.is_logged = run_.plugins->of_steps().log_evaluation(step, report);
  run_.recorder->evaluated(step, report);
}

void StationSteps::evaluate_beside(int64_t step) {
  take_evaluation(/*waits=*/true);
  if (!is_interrupted())
    run_.beside->begin(step, *run_.engines().own_weights(), run_.engines().client());
}

void StationSteps::take_evaluation(bool waits) {
  EvaluationBeside* beside = run_.beside.get();
  if (beside == nullptr || !beside->is_under_way()) return;
  const int64_t step = beside->step();
  if (!beside->ends_within(std::chrono::milliseconds(0))) {
    if (!waits) return;
    const auto range = run_.recorder->phase("evaluate", "prompts", run_.evaluation->num_prompts());
    while (!is_interrupted() && !beside->ends_within(std::chrono::milliseconds(100))) {
    }
    if (is_interrupted()) beside->abandon();
  }
  std::optional<report::ConcurrentEvaluation> done = beside->take();
  if (done && run_.plugins)
    done->report.is_logged = run_.plugins->of_steps().log_evaluation(done->step, done->report);
  if (done) return run_.recorder->evaluated_beside(*done);
  run_.recorder->message(
      fmt::format("the evaluation {} was abandoned; a run that goes on from here makes it again",
                  step < 0 ? "before training" : fmt::format("after step {}", step)));
}

void StationSteps::save(int64_t step) {
  // A class of the user's saves behind what its host is at.
  if (run_.ahead && run_.users_prompts) run_.ahead->wait(run_.trainers->has_failed());
  check(step == trained_, "what is saved is what was trained last");
  is_saving_ = true;
  run_.checkpoints->save(step, is_published_, boundary_);
  is_saving_ = false;
  saved_ = step;
}

void StationSteps::save_unsaved() {
  if (trains(run_.config) && trained_ > saved_) save(trained_);
}

void StationSteps::rescue() {
  if (!trains(run_.config) || run_.trainers->has_failed() || is_saving_) return;
  try {
    if (is_between_) {
      run_.recorder->message(fmt::format(
          "training of rollout step {} came to no end: its weights are not saved", step_));
    } else if (trained_ > saved_) {
      save(trained_);
      run_.recorder->message(
          fmt::format("rollout step {} was trained before the error, and is saved", trained_));
    }
  } catch (const std::exception& error) {
    run_.recorder->message(
        fmt::format("rollout step {} could not be saved: {}", trained_, error.what()));
  }
}

void StationSteps::finish(int64_t step) {
  save_unsaved();
  take_evaluation(/*waits=*/true);
  run_.recorder->finish(step, is_interrupted());
}

int run_loop(Stations& run) {
  StationSteps steps(run);
  steps.begin();
  try {
    if (run.config.train_async) {
      train_async(steps, run.schedule);
    } else if (run.config.debug_rollout_only) {
      generate_only(steps, run.schedule);
    } else {
      train_sync(steps, run.schedule);
    }
  } catch (const StepAbandoned&) {
    steps.finish(std::max(run.schedule.first_step, run.last_step + 1));
  } catch (...) {
    steps.rescue();
    throw;
  }
  return run.interrupt->exit_code();
}

}  // namespace slime::loop
