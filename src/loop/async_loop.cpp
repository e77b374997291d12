#include "loop/async_loop.h"

#include "loop/stations.h"
#include "loop/steps.h"

namespace slime::loop {

int run_async_loop(Stations& run) {
  const RunSchedule& schedule = run.schedule;
  WeightVersion version = *run.engines->weight_version();
  if (schedule.evaluates_before_training()) evaluate(run, schedule.first_step - 1);
  run.rollout->start_stream(schedule, version);
  int64_t step = schedule.first_step;
  for (; step < schedule.num_steps && !run.interrupt->requested(); ++step) {
    const Collected collected = collect(run, step);  // of the stream, within --max-staleness
    const train::TrainReport report = train_on(run, collected.groups);
    if (schedule.publishes_after(step)) publish(run, ++version);
    run.recorder->end_step(step, collected, &report);
    if (schedule.evaluates_after(step) && !run.interrupt->requested()) evaluate(run, step);
    if (schedule.saves_after(step) || run.interrupt->requested()) run.checkpoints->save(step);
  }
  run.recorder->finish(step);
  return run.interrupt->exit_code();
}

}  // namespace slime::loop
