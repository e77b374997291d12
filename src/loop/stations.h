#pragma once

/// The stations of a run, and the one function that builds them from the user's flags.
///
/// A loop (loop/sync_loop.cpp) is a short function over these; they know nothing of one another and
/// meet as the records of core/sample.h. Members stand in the order of their lifetimes: each uses
/// only those above it.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "buffer/data_source.h"
#include "buffer/dataset.h"
#include "buffer/prompt_stream.h"
#include "cluster/placement.h"
#include "cluster/run_identity.h"
#include "config/parse_flags.h"
#include "core/clock.h"
#include "core/interrupt.h"
#include "loop/checkpoints.h"
#include "loop/evaluation.h"
#include "loop/evaluation_beside.h"
#include "loop/fates.h"
#include "loop/function_ahead.h"
#include "loop/function_source.h"
#include "loop/group_source.h"
#include "loop/rollout_source.h"
#include "loop/row_evaluation.h"
#include "loop/start_point.h"
#include "model/network.h"
#include "plugin/engine_door.h"
#include "plugin/plugins.h"
#include "plugin/trainer_functions.h"
#include "plugin/users_prompts.h"
#include "report/recorder.h"
#include "report/run_folder.h"
#include "report/run_memory.h"
#include "report/timeline.h"
#include "roles/engine_workers.h"
#include "roles/engines.h"
#include "roles/trainers.h"
#include "roles/trainers_apart.h"
#include "setup/prompts.h"
#include "setup/run_schedule.h"

namespace slime::loop {

/// A record without behaviour: what a loop needs, by name. The optional ones are absent in runs
/// that have no use for them.
struct Stations {
  Stations(config::RunConfig flags, report::RunFolder run_folder,
           const cluster::RunIdentity& identity, cluster::Hosts& hosts, const Clock& clock);
  ~Stations();
  Stations(const Stations&) = delete;
  Stations& operator=(const Stations&) = delete;

  const config::RunConfig config;
  cluster::RunIdentity identity;  // of the run, and of these trainers
  cluster::Hosts& hosts;
  const Clock& clock;
  report::RunFolder folder;
  report::Timeline timeline;
  report::RunMemory memory;
  setup::RunSchedule schedule;
  StartPoint start;
  int64_t last_step = -1;      // that has ended
  int64_t engine_threads = 0;  // CPU threads of the engine alone; 0: it shares the trainer's
  std::unique_ptr<setup::ModelText> text;  // its address stays: a data set renders with it
  std::optional<buffer::Dataset> dataset;
  std::unique_ptr<buffer::PromptStream> stream;         // --streaming-data, in the place of dataset
  std::unique_ptr<plugin::UsersPrompts> users_prompts;  // --data-source-path, in the place of both
  std::optional<buffer::DataSource> prompts;
  std::unique_ptr<Fates> fates;
  std::unique_ptr<model::Network> network;  // absent where all ranks are workers
  /// What engines in workers have; where all ranks are workers and there is no engine, nothing but the
  /// shape of what they train.
  std::unique_ptr<model::Network> published;
  std::unique_ptr<plugin::TrainerFunctions> functions;  // of the user's, that a rank here calls
  std::unique_ptr<roles::Trainers> trainers;
  roles::TrainersApart* apart = nullptr;                 // the same, where all ranks are workers
  std::unique_ptr<roles::EngineWorkers> engine_workers;  // outlives lost trainers
  std::unique_ptr<roles::Engines> own_engines;           // in the place of engine_workers
  std::unique_ptr<report::Recorder> recorder;
  std::unique_ptr<plugin::EngineDoor> door;  // absent where no function asks the engine
  std::unique_ptr<plugin::Plugins> plugins;  // absent where no function is the user's
  /// Absent where rows or dumps are trained on; beside a rollout function it draws evaluations.
  std::unique_ptr<RolloutSource> rollout;
  std::unique_ptr<GroupSource> others;       // rows, dumps
  std::optional<DrawnStep> drawn;            // with which the run begins; until there is `function`
  std::unique_ptr<FunctionSource> function;  // --rollout-function-path
  std::unique_ptr<FunctionAhead> ahead;      // the same in asynchronous runs
  std::optional<Evaluation> evaluation;
  std::optional<RowEvaluation> row_evaluation;  // of supervised training
  std::unique_ptr<EvaluationBeside> beside;     // where evaluations stop nothing
  std::unique_ptr<Checkpoints> checkpoints;
  std::optional<core::Interrupt>
      interrupt;  // before there are steps a signal simply ends the process

  /// The whole model: its weights, or at least its shape.
  model::Network& shape() const { return network ? *network : *published; }
  roles::Engines& engines() const { return own_engines ? *own_engines : *engine_workers; }
  /// Where the groups of a step come from.
  GroupSource& source() {
    if (ahead) return *ahead;
    if (function) return *function;
    return others ? *others : static_cast<GroupSource&>(*rollout);
  }
};

struct Survivors;  // loop/survivors.h

/// `flags` are complete and valid; their warnings are shown first. Everything that can be wrong
/// with flags, data, template and model directory is found here, before any token is generated.
/// `survivors` of stations before these become theirs; what they say of the run stays. Throws
/// ConfigError, and cluster::WorkerFailure with the survivors back in their place. `hosts` and
/// `clock` outlive the stations.
std::unique_ptr<Stations> build_stations(config::ParsedFlags flags, Survivors& survivors,
                                         cluster::Hosts& hosts, const Clock& clock);

}  // namespace slime::loop
