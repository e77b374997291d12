#include "loop/sync_loop.h"

#include "loop/training_run.h"

namespace slime::loop {

int run_sync_loop(TrainingRun& run) {
  if (run.evaluates_before_training()) run.evaluate(run.first_step() - 1);
  int64_t step = run.first_step();
  for (; step < run.num_steps() && !run.was_interrupted(); ++step) {
    const Collected collected = run.collect(step);  // take prompts, generate, score, keep or drop
    if (!run.trains()) {
      run.record(step, collected, nullptr);
      continue;
    }
    const train::TrainReport report = run.train(collected.groups);
    run.publish(step + 1);
    run.record(step, collected, &report);
    if (run.evaluates_after(step)) run.evaluate(step);
    if (run.saves_after(step)) run.save(step);
  }
  return run.finish(step);
}

}  // namespace slime::loop
