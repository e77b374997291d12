#include "roles/adapter_engine.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <utility>

#include "core/error.h"
#include "model/adapters.h"
#include "model/weight_checksums.h"

namespace slime::roles {
namespace {

engine::EngineConfig with_adapters(engine::EngineConfig config,
                                   const engine::ServedAdapters& adapters) {
  config.adapters = &adapters;
  return config;
}

}  // namespace

SharedEngine::SharedEngine(std::unique_ptr<model::Network> network, engine::EngineConfig config,
                           int64_t num_runs, const Clock& clock)
    : network_(std::move(network)),
      adapters_(*network_, 2 * num_runs),
      engine_(std::make_unique<engine::Engine>(
          *network_, with_adapters(std::move(config), adapters_), clock)) {
  adapters_.change_with(*engine_);
}

std::shared_ptr<model::AdapterTensors> SharedEngine::publish(const std::string& name,
                                                             model::Network& trained) {
  const at::NoGradGuard no_grad;
  auto tensors = std::make_shared<model::AdapterTensors>(network_->config(), network_->weights(),
                                                         trained.adapters()->at(0)->form(),
                                                         comm::Mesh::single());
  tensors->weights().copy_from(trained.trained());
  engine::or_throw(adapters_.put(name, tensors));
  return tensors;
}

void SharedEngine::unload(const std::string& name) { engine::or_throw(adapters_.unload(name)); }

AdapterClient::AdapterClient(engine::EngineClient& engine, std::string name)
    : ForwardingClient(engine), name_(std::move(name)) {}

std::string AdapterClient::adapter_of(WeightVersion version) const {
  return fmt::format("{}@{}", name_, version);
}

void AdapterClient::set_version(WeightVersion version,
                                std::shared_ptr<model::AdapterTensors> tensors) {
  version_ = version;
  published_ = std::move(tensors);
}

engine::RequestHandle AdapterClient::submit(engine::GenerateRequest request, OnUpdate on_update) {
  const WeightVersion version = version_;
  const std::string rid =
      request.rid.empty() ? fmt::format("request-{}", ++num_unnamed_) : request.rid;
  request.rid = fmt::format("{}/{}", name_, rid);
  // One that the caller names is of another run, or of nobody: the engine refuses it, as no name has a slash.
  request.adapter =
      request.adapter.empty() ? adapter_of(version) : fmt::format("{}/{}", name_, request.adapter);
  return engine_.submit(std::move(request),
                        [rid, version, tell = std::move(on_update)](engine::GenerateUpdate update) {
                          update.rid = rid;
                          for (VersionRun& run : update.versions) run.version = version;
                          if (update.scored_by) update.scored_by = version;
                          tell(std::move(update));
                        });
}

Expected<void> AdapterClient::abort_prefix(const std::string& prefix) {
  return engine_.abort_prefix(fmt::format("{}/{}", name_, prefix));
}

Expected<void> AdapterClient::pause(engine::PauseMode mode) {
  if (mode == engine::PauseMode::kInPlace) return {};
  if (mode == engine::PauseMode::kAbort) return abort_all();
  return failure("requests of other adapters run in this engine: it does not stand still for one");
}

Expected<void> AdapterClient::sleep() {
  return failure("requests of other adapters run in this engine: it does not sleep");
}

Expected<void> AdapterClient::wake() {
  return failure("an engine of several adapters never sleeps");
}

Expected<void> AdapterClient::update_weights(const engine::WeightUpdate& /*update*/) {
  return failure("the base of several adapters stays as it is");
}

Expected<WeightChecksums> AdapterClient::check_weights(engine::WeightCheck check) {
  if (check != engine::WeightCheck::kChecksum)
    return failure("of one of several adapters checksums can be had, and nothing else");
  return model::checksums_of(published_->weights());
}

AdapterEngine::AdapterEngine(SharedEngine& engine, const std::string& name, model::Network& trained,
                             WeightVersion version)
    : shared_(engine), trained_(trained), client_(engine.engine(), name) {
  const model::AdapterForm& form = trained.adapters()->at(0)->form();
  if (!form.saved.empty()) {
    throw ConfigError(
        fmt::format("has whole modules ({}), which rows of one batch cannot choose among: train it "
                    "alone, without --adapter",
                    form.saved.front()));
  }
  AdapterEngine::update_weights(version, {});
}

AdapterEngine::~AdapterEngine() {
  client_.abort_all();
  for (const std::string& name : loaded_) shared_.unload(name);
  // What is behind the abort in the engine's queue runs when all of the run's requests have ended.
  shared_.engine().run_exclusive([] {});
}

void AdapterEngine::update_weights(WeightVersion version, const FetchWeights& /*fetch*/) {
  constexpr std::size_t kMost = 2;
  const std::string name = client_.adapter_of(version);
  const bool is_new = loaded_.empty() || loaded_.back() != name;
  if (is_new && loaded_.size() == kMost) {
    shared_.unload(loaded_.front());
    loaded_.pop_front();
  }
  const std::shared_ptr<model::AdapterTensors> tensors = shared_.publish(name, trained_);
  if (is_new) loaded_.push_back(name);
  client_.set_version(version, tensors);
}

}  // namespace slime::roles
