#pragma once

/// Evaluation that stops nothing: a second engine with a copy of the weights draws it while training
/// and generation go on (docs/how/asynchronous_training.md).
///
/// The copy is taken when an evaluation begins, so its scores are those of one version however long
/// it takes. Weights, keys and values of it exist as long as an evaluation runs. One runs at a time.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <optional>

#include "config/run_config.h"
#include "core/clock.h"
#include "engine/client.h"
#include "engine/engine_config.h"
#include "loop/evaluation.h"
#include "model/network.h"
#include "report/eval_report.h"
#include "report/run_memory.h"
#include "report/timeline.h"
#include "rollout/rollout.h"

namespace slime::loop {

class EvaluationBeside {
 public:
  /// `engine`: of the second one. `hooks` score and detokenize. References outlive the object.
  EvaluationBeside(const Evaluation& evaluation, const config::RunConfig& config,
                   engine::EngineConfig engine, rollout::RolloutHooks hooks,
                   const report::RunMemory& memory, report::Timeline& timeline, const Clock& clock);
  /// Abandons the one under way.
  ~EvaluationBeside();
  EvaluationBeside(const EvaluationBeside&) = delete;
  EvaluationBeside& operator=(const EvaluationBeside&) = delete;

  // The loop's thread.

  /// With a copy of `weights`, which `published` has as its version; when this returns they may
  /// change. Nothing is under way before. Throws ConfigError when there is no memory for it.
  void begin(int64_t step, model::Network& weights, const engine::EngineClient& published);

  bool is_under_way() const { return result_.valid(); }
  /// The one under way, if there is one.
  int64_t step() const { return step_; }
  /// Whether take() returns at once, within this time.
  bool ends_within(std::chrono::milliseconds time) const;
  /// Waits for the one under way. Empty when it was abandoned. Throws as an evaluation does.
  std::optional<report::ConcurrentEvaluation> take();
  /// The one under way ends early, and take() gives nothing.
  void abandon() { stop_ = true; }

 private:
  const Evaluation& evaluation_;
  const config::RunConfig& config_;
  const engine::EngineConfig engine_;
  const rollout::RolloutHooks hooks_;
  const report::RunMemory& memory_;
  report::Timeline& timeline_;
  const Clock& clock_;
  std::atomic<bool> stop_{false};
  int64_t step_ = 0;
  std::future<report::ConcurrentEvaluation> result_;  // valid while one is under way
};

}  // namespace slime::loop
