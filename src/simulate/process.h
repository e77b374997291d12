#pragma once

/// One process of a simulated run, from its start or a checkpoint to its end, whichever that is.
/// Loop, rollout, buffer and ledger are the real ones.

#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "buffer/data_source.h"
#include "buffer/ledger.h"
#include "loop/outcome_log.h"
#include "loop/steps.h"
#include "roles/engines.h"
#include "roles/handover.h"
#include "rollout/rollout.h"
#include "setup/run_schedule.h"
#include "simulate/event_queue.h"
#include "simulate/invariant_checker.h"
#include "simulate/scenario.h"
#include "simulate/stub_engine.h"
#include "simulate/stub_rewards.h"

namespace slime::simulate {

/// A line of what happens; empty: nobody reads it.
using Trace = std::function<void(const std::string& line)>;

/// What outlives a process.
struct Disk {
  struct Checkpoint {
    int64_t step = 0;
    WeightVersion version = 0;
    json::object data;
    Course course;
  };
  std::filesystem::path ledger;
  std::optional<Checkpoint> checkpoint;
};

/// Sums over one process.
struct Figures {
  double seconds = 0;
  double train_seconds = 0;
  double engine_seconds = 0;  // of all engines together
  int64_t num_steps = 0;
  int64_t num_groups = 0;
  int64_t tokens_sampled = 0;
  int64_t tokens_trained = 0;
  int64_t tokens_discarded = 0;
  int64_t lag_sum = 0;  // over trained tokens
  int64_t largest_lag = 0;
  int64_t num_events = 0;
};

/// One class because it is the run: stations, faults and the loop's verbs meet here alone.
class Process final : public loop::Steps {
 public:
  /// `number`: of this process in its run; faults that end it come only before the last restart.
  /// References outlive the object.
  Process(const Scenario& scenario, Disk& disk, int64_t number, const Trace& trace);
  ~Process() override;

  /// Why it ended early.
  struct Ended {
    std::string reason;
  };
  /// The whole of it. Nothing: it came to its end. Throws BugError when something is as it must not
  /// be.
  std::optional<Ended> run();

  const Figures& figures() const { return figures_; }

  WeightVersion version() const override { return engine_.weight_version(); }
  void start_stream(WeightVersion version) override;
  report::Collected collect(int64_t step) override;
  train::TrainReport train_on(const std::vector<Group>& groups) override;
  void publish(WeightVersion version) override;
  void end_step(int64_t step, const report::Collected& collected,
                const train::TrainReport* report) override;
  void evaluate(int64_t step) override;
  void save(int64_t step) override;
  void finish(int64_t step) override;
  bool is_interrupted() const override { return false; }

 private:
  /// The stub as a loop sees it.
  class Engines final : public roles::Engines {
   public:
    Engines(EventQueue& queue, StubEngine& engine, const Scenario& scenario)
        : queue_(queue), engine_(engine), scenario_(scenario) {}
    engine::EngineClient& client() override { return engine_; }
    int64_t max_request_tokens() const override { return 0; }
    void yield_to_training() override;
    void update_weights(WeightVersion version, const FetchWeights& fetch) override;

   private:
    EventQueue& queue_;
    StubEngine& engine_;
    const Scenario& scenario_;
  };

  class Prompts;

  void before_event();
  bool goes_wrong(double probability);
  void disk_may_be_full();
  std::unique_ptr<buffer::Ledger> open_ledger();
  void restore();
  void open_rollout();
  rollout::RolloutHooks make_hooks();
  rollout::ResponseRules rules(uint64_t seed) const;
  roles::Handover handover();
  void loop();
  void come_to_rest();
  void note(const char* what, int64_t step);

  const Scenario& scenario_;
  Disk& disk_;
  const int64_t number_;
  const Trace& trace_;
  Chance chance_;
  StubRewards rewards_;
  EventQueue queue_;
  StubEngine engine_;
  Engines engines_;
  buffer::DataSource prompts_;
  std::unique_ptr<loop::OutcomeLog> outcomes_;
  std::unique_ptr<Prompts> rollout_prompts_;
  InvariantChecker checker_;
  setup::RunSchedule schedule_;
  std::atomic<bool> rank_is_lost_{false};
  bool has_stream_ = false;
  bool has_ended_early_ = false;  // with the data
  int64_t num_evaluated_tokens_ = 0;
  int64_t num_evaluations_ = 0;
  std::string fault_;  // that ends the process
  Figures figures_;
  std::unique_ptr<rollout::Rollout> rollout_;
};

}  // namespace slime::simulate
