#pragma once

/// Groups of a rollout function of the user's: called for a step when that is asked for, or one step
/// ahead. Beside it a rollout draws evaluations.

#include <memory>
#include <vector>

#include "loop/function_ahead.h"
#include "loop/function_source.h"
#include "loop/group_source.h"
#include "loop/outcome_log.h"
#include "loop/rollout_source.h"

namespace slime::loop {

class FunctionGroups : public GroupSource {
 public:
  FunctionGroups(std::unique_ptr<RolloutSource> evaluations,
                 std::unique_ptr<FunctionSource> function)
      : evaluations_(std::move(evaluations)), function_(std::move(function)) {}

  report::Collected take(int64_t step) override { return function_->take(step); }
  void while_training(const std::function<void()>& train) override {
    evaluations_->while_training(train);
  }
  bool draws() const override { return true; }
  rollout::Rollout& rollout() override { return evaluations_->rollout(); }
  OpenGroups open_groups() override;
  rollout::Snapshot between_steps() override { return evaluations_->between_steps(); }

 protected:
  FunctionSource& function() { return *function_; }

 private:
  std::unique_ptr<RolloutSource> evaluations_;
  std::unique_ptr<FunctionSource> function_;
};

class FunctionGroupsAhead final : public FunctionGroups {
 public:
  /// References outlive the object.
  FunctionGroupsAhead(std::unique_ptr<RolloutSource> evaluations,
                      std::unique_ptr<FunctionSource> function, int64_t num_steps,
                      int64_t groups_per_step, OutcomeLog& outcomes, roles::Trainers& trainers,
                      report::RunMemory& memory, report::Recorder& recorder);

  report::Collected take(int64_t step) override { return ahead_.take(step); }
  void start_stream(const setup::RunSchedule& schedule, WeightVersion /*version*/) override {
    ahead_.begin(schedule.first_step);
  }
  void batch_is_made() override { ahead_.begin_next(); }
  bool wait(const std::atomic<bool>& gives_up) override { return ahead_.wait(gives_up); }
  bool is_ahead() const override { return true; }

 private:
  FunctionAhead ahead_;
};

}  // namespace slime::loop
