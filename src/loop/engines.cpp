#include "loop/engines.h"

#include "core/error.h"

namespace slime::loop {

engine::EngineClient& NoEngines::client() { throw BugError("a run that generates has an engine"); }

EngineHere::EngineHere(model::Network& network, const engine::EngineConfig& config,
                       WeightVersion version, bool offloads, const RunMemory& memory,
                       const Clock& clock)
    : memory_(memory), offloads_(offloads) {
  memory_.explain_shortage(Phase::kGenerate, [&] {
    engine_ = std::make_unique<engine::Engine>(network, config, clock);
  });
  engine::or_throw(engine_->pause(engine::PauseMode::kInPlace));
  engine::or_throw(engine_->update_weights({.version = version}));
  engine::or_throw(engine_->resume());
}

void EngineHere::yield_to_training() {
  engine::or_throw(engine_->pause(engine::PauseMode::kRetract));
  if (offloads_) engine::or_throw(engine_->sleep());
}

void EngineHere::update_weights(WeightVersion version) {
  engine::or_throw(engine_->update_weights({.version = version}));
  if (offloads_) {
    memory_.release_unused();
    memory_.explain_shortage(Phase::kGenerate, [this] { engine::or_throw(engine_->wake()); });
  }
  engine::or_throw(engine_->resume());
}

}  // namespace slime::loop
