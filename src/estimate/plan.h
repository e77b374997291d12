#pragma once

/// A run's layout, memory and messages on devices that nobody has started: `slime plan`.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "estimate/hand_over.h"
#include "estimate/layouts.h"
#include "model/adapter_config.h"
#include "model/config.h"

namespace slime::estimate {

struct PlanConfig {
  model::ModelConfig model;
  /// Adapters that are trained in the place of the model's weights; nothing: those are trained.
  std::optional<model::AdapterForm> adapters;
  std::vector<DraftShape> drafts;  // what the engines draft with
  Workload workload;
  Devices trainers;
  bool colocates = true;
  bool takes_turns = true;            // where engines are on the trainers' devices
  int64_t rollout_devices = 0;        // of engines that are apart
  std::optional<int64_t> per_engine;  // devices of an engine; nothing: as few as hold the model
  bool has_codes = false;             // engines store their matrices as codes
  /// Why a run refuses engines of so many devices; empty: it does not. Null: it refuses none.
  std::function<std::string(int64_t per_engine)> why_no_engine;
  WhyNoLayout why_no_layout;  // the same of layouts of trainers
  Wanted wanted;
  Rates rates;
  int64_t num_shown = 5;  // layouts, of those that fit
};

struct Plan {
  PlanConfig config;
  ModelShape shape;
  std::vector<Candidate> candidates;  // the first is the plan
  Engines engines;
  /// Why engines of more devices, which would take less of each, are not the plan, and how many devices an engine
  /// may have; both empty: such engines are refused nowhere.
  std::string refused_engine;
  std::vector<int64_t> engine_sizes;
  EngineMemory engine;
  Collective update;
  bool fits = false;

  const Candidate& best() const { return candidates.front(); }
};

/// Throws ConfigError for sizes that cannot be, and for a model that no engine of a host can hold.
Plan make_plan(PlanConfig config);

/// For people, with the sources of all rates.
std::string to_table(const Plan& plan);
json::object to_json(const Plan& plan);

}  // namespace slime::estimate
