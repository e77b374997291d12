#include "loop/async_loop.h"

#include "loop/steps.h"

namespace slime::loop {

void train_async(Steps& run, const setup::RunSchedule& schedule) {
  WeightVersion version = run.version();
  if (schedule.evaluates_before_training()) run.evaluate(schedule.first_step - 1);
  run.start_stream(version);
  int64_t step = schedule.first_step;
  for (; step < schedule.num_steps && !run.is_interrupted(); ++step) {
    const report::Collected collected = run.collect(step);  // of the stream, within --max-staleness
    const train::TrainReport report = run.train_on(collected.groups);
    if (schedule.publishes_after(step)) run.publish(++version);
    run.end_step(step, collected, &report);
    if (schedule.saves_after(step)) run.save(step);
    if (schedule.evaluates_after(step) && !run.is_interrupted()) run.evaluate(step);
  }
  run.finish(step);
}

}  // namespace slime::loop
