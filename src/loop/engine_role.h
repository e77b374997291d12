#pragma once

/// The engine role of a worker: an engine with weights of its own, served to the controller over the
/// worker's second connection. Its weights mean nothing until the controller has sent some.

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

  /// Prompt and response together cannot be longer.
  int64_t max_request_tokens() const { return engine_->max_request_tokens(); }

  /// Until the controller closes the connection, which this owns. Throws net::FrameError when it
  /// sends what means nothing.
  void serve(int descriptor);

 private:
  ModelText text_;
  std::unique_ptr<model::Network> running_;
  std::unique_ptr<model::Network> second_;  // new weights arrive here
  std::unique_ptr<engine::Engine> engine_;
};

}  // namespace slime::loop
