#include "loop/engine_role.h"

#include "engine/remote/engine_server.h"
#include "loop/run_start.h"
#include "model/config.h"
#include "model/network.h"
#include "model/placement.h"

namespace slime::loop {

EngineRole::EngineRole(const EngineStart& start, const cluster::RunIdentity& identity,
                       const Clock& clock)
    : identity_(identity) {
  const config::RunConfig& config = start.config;
  // No template is rendered here: requests are tokens.
  text_ = load_model_text(config.hf_checkpoint, /*needs_template=*/false, {});
  const model::ModelConfig shape = model::read_model_config(config.hf_checkpoint);
  const model::Precision precision = model::precision_on(config.device, config.dtype);
  running_ = model::make_blank_network(shape, precision);
  second_ = model::make_blank_network(shape, precision);
  engine::EngineConfig engine = make_engine_config(config, text_, start.kv_cache_bytes);
  engine.num_threads = start.num_threads;
  engine_ = std::make_unique<engine::Engine>(*running_, engine, clock);
}

void EngineRole::serve(int descriptor) {
  engine::EngineServerConfig config;
  config.why_refused = [this](std::string_view greeting) {
    return cluster::why_refused(identity_, greeting);
  };
  config.epoch = identity_.epoch;
  engine::EngineServer(*engine_, descriptor, second_.get(), std::move(config)).serve();
}

}  // namespace slime::loop
