#include "roles/engines.h"

#include "core/error.h"

namespace slime::roles {

engine::EngineClient& NoEngines::client() { throw BugError("a run that generates has an engine"); }

EngineHere::EngineHere(model::Network& network, const engine::EngineConfig& config,
                       WeightVersion version, engine::RunningRequests running, bool offloads,
                       const report::RunMemory& memory, const Clock& clock)
    : memory_(memory), running_(running), offloads_(offloads) {
  memory_.explain_shortage(estimate::Phase::kGenerate, [&] {
    engine_ = std::make_unique<engine::Engine>(network, config, clock);
  });
  engine::or_throw(engine_->update_weights({.version = version}));
}

void EngineHere::yield_to_training() {
  engine::or_throw(engine_->pause(engine::PauseMode::kInPlace));
  if (offloads_) engine::or_throw(engine_->sleep());
}

void EngineHere::update_weights(WeightVersion version, const FetchWeights& /*fetch*/) {
  engine::or_throw(engine_->update_weights({.version = version, .running = running_}));
  if (offloads_) {
    memory_.release_unused();
    memory_.explain_shortage(estimate::Phase::kGenerate,
                             [this] { engine::or_throw(engine_->wake()); });
  }
  engine::or_throw(engine_->resume());
}

EngineBeside::EngineBeside(model::Network& trained, std::unique_ptr<model::Network> own,
                           const engine::EngineConfig& config, WeightVersion version,
                           engine::RunningRequests running, const Turns& turns,
                           const report::RunMemory& memory, const Clock& clock)
    : memory_(memory), trained_(trained), own_(std::move(own)), turns_(turns), running_(running) {
  memory_.explain_shortage(estimate::Phase::kGenerate, [&] {
    engine_ = std::make_unique<engine::Engine>(*own_, config, clock);
  });
  copy_weights(version);
}

void EngineBeside::yield_to_training() {
  if (!turns_.takes) return;
  engine::or_throw(engine_->pause(engine::PauseMode::kInPlace));
  if (turns_.offloads) engine::or_throw(engine_->sleep());
}

void EngineBeside::copy_weights(WeightVersion version) {
  engine::or_throw(engine_->update_weights(
      {.version = version, .source = engine::FromNetwork{&trained_}, .running = running_}));
}

void EngineBeside::update_weights(WeightVersion version, const FetchWeights& /*fetch*/) {
  copy_weights(version);
  go_on();
}

void EngineBeside::go_on() {
  if (!turns_.takes) return;
  if (turns_.offloads) {
    memory_.release_unused();
    memory_.explain_shortage(estimate::Phase::kGenerate,
                             [this] { engine::or_throw(engine_->wake()); });
  }
  engine::or_throw(engine_->resume());
}

model::Network* EngineBeside::own_weights() {
  engine_->last_copy_seconds();  // on a GPU the copy may be under way
  return own_.get();
}

}  // namespace slime::roles
