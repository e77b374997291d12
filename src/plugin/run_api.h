#pragma once

/// HTTP API of a run's engine, for users' functions and agents: the routes of `slime serve` on loopback and a
/// port that the system picks, for processes of this user alone. Requests are sampled with the weights that
/// the engine has at each token, and end when their connection ends.
///
/// The port is known before there is an engine, because users' functions are told it when they are
/// found; nobody is answered before open().

#include <cstdint>
#include <memory>

#include "config/run_config.h"
#include "engine/http/server.h"
#include "plugin/run_api_engine.h"
#include "setup/prompts.h"

namespace slime::plugin {

class RunApi {
 public:
  /// Listens. `text` outlives the object. Throws ConfigError when it cannot listen.
  RunApi(const config::RunConfig& config, const setup::ModelText& text);
  RunApi(const RunApi&) = delete;
  RunApi& operator=(const RunApi&) = delete;

  std::uint16_t port() const { return server_.port(); }

  /// Answers from now on. `engine` outlives the object; `max_request_tokens`: of prompt and response.
  void open(engine::EngineClient& engine, int64_t max_request_tokens);

  /// RunApiEngine::num_sampled_tokens. Any thread.
  int64_t num_sampled_tokens() const { return engine_.num_sampled_tokens(); }
  /// RunApiEngine::set_aborting. Any thread.
  void set_aborting(bool is_aborting) { engine_.set_aborting(is_aborting); }

 private:
  RunApiEngine engine_;
  engine::ServedModel model_;
  engine::ApiServer server_;
};

}  // namespace slime::plugin
