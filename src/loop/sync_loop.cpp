#include "loop/sync_loop.h"

#include "loop/steps.h"

namespace slime::loop {

void train_sync(Steps& run, const setup::RunSchedule& schedule) {
  if (schedule.evaluates_before_training()) run.evaluate(schedule.first_step - 1);
  int64_t step = schedule.first_step;
  for (; step < schedule.num_steps && !run.is_interrupted(); ++step) {
    const report::Collected collected =
        run.collect(step);  // prompts, responses, scores; kept or dropped
    const train::TrainReport report = run.train_on(collected.groups);
    if (schedule.publishes_after(step)) run.publish(run.version() + 1);
    run.end_step(step, collected, &report);
    if (schedule.saves_after(step)) run.save(step);
    if (schedule.evaluates_after(step) && !run.is_interrupted()) run.evaluate(step);
  }
  run.finish(step);
}

void generate_only(Steps& run, const setup::RunSchedule& schedule) {
  if (schedule.evaluates_before_training()) run.evaluate(schedule.first_step - 1);
  int64_t step = schedule.first_step;
  for (; step < schedule.num_steps && !run.is_interrupted(); ++step)
    run.end_step(step, run.collect(step), nullptr);
  run.finish(step);
}

}  // namespace slime::loop
