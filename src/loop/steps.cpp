#include "loop/steps.h"

#include "core/error.h"
#include "loop/stations.h"
#include "loop/train_config.h"

namespace slime::loop {

Collected collect(Stations& run, int64_t step) {
  run.recorder->begin_step(step);
  run.memory.begin_phase();
  const auto begin = run.clock.now();
  Collected collected = run.source().take(step);
  collected.seconds = seconds_between(begin, run.clock.now());
  if (run.rollout) run.memory.end_phase(Phase::kGenerate);
  if (collected.groups.empty())
    throw ConfigError(
        "the data ended: no prompt is left for this step (--num-rollout is too large)");
  return collected;
}

namespace {

/// Before weights change under the engines' requests: drain and interrupt wait until there are none.
void make_way(Stations& run) {
  if (!run.rollout || !run.rollout->streams() || run.config.update_mode == "suspend") return;
  run.rollout->rollout().hold(run.config.update_mode == "interrupt");
}

}  // namespace

train::TrainReport train_on(Stations& run, const std::vector<Group>& groups) {
  const auto range = run.recorder->phase("train");
  run.memory.begin_phase();
  if (run.config.shares_weights()) make_way(run);
  run.engines->yield_to_training();
  train::TrainReport report;
  run.memory.explain_shortage(
      Phase::kTrain, [&] { report = run.trainers->train(make_batch(groups, run.config)); });
  run.memory.end_phase(Phase::kTrain);
  return report;
}

void publish(Stations& run, WeightVersion version) {
  const auto range = run.recorder->phase("publish");
  if (!run.config.shares_weights()) make_way(run);
  run.trainers->weights_published();
  if (run.memory.plan().offloads()) run.trainers->release_memory();
  run.engines->update_weights(version);
  if (run.rollout && run.rollout->streams()) run.rollout->rollout().release(version);
}

void evaluate(Stations& run, int64_t step) {
  const auto range = run.recorder->phase("evaluate", "prompts", run.evaluation->num_prompts());
  EvalReport report;
  run.memory.explain_shortage(Phase::kGenerate, [&] {
    report = run.evaluation->run(run.rollout->rollout(), run.interrupt->requested());
  });
  run.recorder->evaluated(step, report);
}

}  // namespace slime::loop
