#pragma once

/// Networks, trainers and engines of a run: who is in this process, and who in workers
/// (docs/decisions/0119-one-topology.md).
///
///   one process         network, TrainersHere over it, EngineHere or EngineBeside
///   several adapters    the same, with a network over the shared base and AdapterEngine
///   several ranks       TrainersApart, RankEngines in their workers
///   engines in workers  TrainersApart, published weights, EngineWorkers
///
/// Members stand in the order of their lifetimes: each uses only those above it.

#include <memory>

#include "model/config.h"
#include "model/network.h"
#include "plugin/trainer_functions.h"
#include "roles/engines.h"
#include "roles/kept_engines.h"
#include "roles/trainers.h"

namespace slime::loop {

class SharedBase;

struct Topology {
  /// Of several runs over one base, which outlives them; null: the run is alone.
  SharedBase* shared = nullptr;
  int64_t engine_threads = 0;  // CPU threads of the engines alone; 0: they share the trainer's
  model::ModelConfig model;
  /// Of this process; null where nothing is computed here. What engines in workers have is published.
  std::unique_ptr<model::Network> network, published;
  /// With draft layers, for an engine in this process: all numbers before those are the ones of `network`, which is
  /// trained. Null: the engine has that, or one of its own.
  std::unique_ptr<model::Network> drafting;
  std::unique_ptr<plugin::TrainerFunctions> functions;  // of the user's, which TrainersHere calls
  std::unique_ptr<roles::KeptEngines> session;          // --rollout-session-id
  std::unique_ptr<roles::Trainers> trainers;
  std::unique_ptr<roles::Engines> engines;
};

}  // namespace slime::loop
