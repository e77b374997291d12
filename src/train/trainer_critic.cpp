/// The trainer's side of its critic: a step of it, and what is said of one whose numbers are not finite.

#include "train/bad_numbers.h"
#include "train/critic.h"
#include "train/trainer.h"

namespace slime::train {

StepReport Trainer::train_critic_step(const TrainBatch& batch, const StepPlan& plan,
                                      const Columns& columns) {
  StepReport report;
  Critic::Step step = critic_->train_step(plan, columns);
  report.metrics = std::move(step.metrics);
  if (step.is_updated) {
    state_.critic_skipped_in_a_row = 0;
    return report;
  }
  ++state_.critic_skipped_in_a_row;
  std::vector<std::string> problems;
  if (!step.bad_samples.empty())
    problems.push_back("the value loss of samples " + ordinals_of(batch, step.bad_samples) +
                       " is not finite");
  if (!step.bad_gradients.empty())
    problems.push_back("gradients that are not finite: " + step.bad_gradients);
  report.critic_skipped = join_problems(problems);
  return report;
}

}  // namespace slime::train
