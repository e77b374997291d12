#pragma once

/// The engine role of a worker, served to the controller over the worker's second connection: an engine
/// with weights of its own, which mean nothing until the controller has sent some, or one over the
/// weights that the trainer role of the same worker trains.

#include <memory>

#include "config/run_config.h"
#include "core/clock.h"
#include "engine/engine.h"
#include "loop/prompts.h"
#include "loop/rank_tasks.h"
#include "model/network.h"

namespace slime::loop {

class EngineRole final {
 public:
  /// `clock` outlives the role. Throws ConfigError for a model that cannot be served.
  EngineRole(const EngineStart& start, const config::RunConfig& config, const Clock& clock);
  /// Over the weights of `trained`, which outlives the role.
  EngineRole(const EngineStart& start, const config::RunConfig& config, model::Network& trained,
             const Clock& clock);

  /// Prompt and response together cannot be longer.
  int64_t max_request_tokens() const { return engine_->max_request_tokens(); }

  /// Until the controller closes the connection, which this owns; how many requests came. Throws
  /// net::FrameError when it sends what means nothing.
  int64_t serve(int descriptor);

 private:
  void open(const EngineStart& start, const config::RunConfig& config, model::Network& network,
            const Clock& clock);

  ModelText text_;
  std::unique_ptr<model::Network> running_;  // null: the trainer's
  std::unique_ptr<model::Network> second_;   // new weights arrive here; null: in place
  std::unique_ptr<engine::Engine> engine_;
};

}  // namespace slime::loop
