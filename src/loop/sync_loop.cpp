#include "loop/sync_loop.h"

#include "loop/stations.h"
#include "loop/steps.h"

namespace slime::loop {

int run_sync_loop(Stations& run) {
  const RunSchedule& schedule = run.schedule;
  if (schedule.evaluates_before_training()) evaluate(run, schedule.first_step - 1);
  int64_t step = schedule.first_step;
  for (; step < schedule.num_steps && !run.interrupt->requested(); ++step) {
    const Collected collected = collect(run, step);  // prompts, responses, scores; kept or dropped
    const train::TrainReport report = train_on(run, collected.groups);
    if (schedule.publishes_after(step)) publish(run, step + 1);
    run.recorder->end_step(step, collected, &report);
    if (schedule.evaluates_after(step) && !run.interrupt->requested()) evaluate(run, step);
    // Asked after the evaluation: Ctrl-C ends that early, and what was trained is saved.
    if (schedule.saves_after(step) || run.interrupt->requested()) run.checkpoints->save(step);
  }
  run.recorder->finish(step);
  return run.interrupt->exit_code();
}

int run_rollout_loop(Stations& run) {
  const RunSchedule& schedule = run.schedule;
  if (schedule.evaluates_before_training()) evaluate(run, schedule.first_step - 1);
  int64_t step = schedule.first_step;
  for (; step < schedule.num_steps && !run.interrupt->requested(); ++step)
    run.recorder->end_step(step, collect(run, step), nullptr);
  run.recorder->finish(step);
  return run.interrupt->exit_code();
}

}  // namespace slime::loop
