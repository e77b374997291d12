#include "loop/engine_role.h"

#include "engine/remote/engine_server.h"
#include "loop/run_start.h"
#include "model/config.h"
#include "model/network.h"
#include "model/placement.h"

namespace slime::loop {

EngineRole::EngineRole(const EngineStart& start, const config::RunConfig& config,
                       const Clock& clock) {
  const model::ModelConfig shape = model::read_model_config(config.hf_checkpoint);
  const model::Precision precision = model::precision_on(config.device, config.dtype);
  running_ = model::make_blank_network(shape, precision);
  second_ = model::make_blank_network(shape, precision);
  open(start, config, *running_, clock);
}

EngineRole::EngineRole(const EngineStart& start, const config::RunConfig& config,
                       model::Network& trained, const Clock& clock) {
  open(start, config, trained, clock);
}

void EngineRole::open(const EngineStart& start, const config::RunConfig& config,
                      model::Network& network, const Clock& clock) {
  // No template is rendered here: requests are tokens.
  text_ = load_model_text(config.hf_checkpoint, /*needs_template=*/false, {});
  engine::EngineConfig engine = make_engine_config(config, text_, start.kv_cache_bytes);
  engine.num_threads = start.num_threads;
  engine_ = std::make_unique<engine::Engine>(network, engine, clock);
}

int64_t EngineRole::serve(int descriptor) {
  engine::EngineServer server(*engine_, descriptor, second_.get());
  server.serve();
  return server.num_requests();
}

}  // namespace slime::loop
