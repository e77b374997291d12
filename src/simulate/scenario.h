#pragma once

/// Scenario of one simulated run: its mode, its world, and its faults.

#include <cstdint>
#include <limits>
#include <string>

#include "estimate/cost_model.h"
#include "rollout/rollout.h"
#include "simulate/event_queue.h"
#include "simulate/stub_engine.h"

namespace slime::simulate {

/// Draws of training and of evaluation.
inline constexpr uint64_t kTrainingSeed = 1;
inline constexpr uint64_t kEvaluationSeed = 2;

struct Scenario {
  uint64_t seed = 0;

  // The mode.
  bool is_async = true;
  bool keeps_partial = false;     // synchronous: partial rollouts
  int64_t groups_per_step = 2;    // B
  int64_t groups_per_refill = 2;  // synchronous: over-sampling above B
  int64_t samples_per_group = 2;
  int64_t num_steps = 6;
  int64_t max_staleness = 1;            // K
  int64_t steps_per_update = 1;         // k
  std::string update_mode = "suspend";  // interrupt, drain
  bool recomputes = false;              // what requests that run do at an update
  bool shares_weights = false;
  rollout::ConsumptionOrder order = rollout::ConsumptionOrder::kDispatch;
  rollout::StalePolicy policy = rollout::StalePolicy::kWait;
  int64_t max_waiting_groups = 4;
  int64_t max_concurrent_samples = 8;
  int64_t save_interval = 2;
  int64_t eval_interval = 0;   // 0: none
  double reward_timeout = 30;  // seconds

  // The world.
  int64_t num_prompts = std::numeric_limits<int64_t>::max();  // then the data ends
  int64_t max_response = 64;
  StubEngine::LengthFn length_of;  // of a response, by its key
  StubEngineConfig engine;
  int64_t reward_threads = 2;
  int64_t most_turns = EventQueue::kMostTurns;  // of the event queue, before it gives up
  double filter_rate = 0;                       // of groups that the dynamic filter drops

  // What goes wrong; probabilities of each single event.
  double reward_fails = 0;
  double reward_hangs = 0;
  double disk_full = 0;      // each record of the ledger, and each checkpoint
  double kill = 0;           // each event: the process is gone
  double rank_lost = 0;      // each training step
  int64_t max_restarts = 0;  // after so many nothing of the last three goes wrong any more
};

/// A small run in any mode, with anything that may go wrong.
Scenario scenario_of(uint64_t seed);

/// One line.
std::string describe(const Scenario& scenario);

}  // namespace slime::simulate
