#include "roles/engine_role.h"

#include <fmt/format.h>

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "estimate/memory_needs.h"
#include "estimate/process_memory.h"
#include "kernels/gpu/gpu.h"
#include "model/adapters.h"
#include "model/config.h"
#include "model/placement.h"
#include "roles/networks.h"
#include "roles/run_adapters.h"
#include "roles/run_start.h"

namespace slime::roles {
namespace {

estimate::MemoryPlan plan_of(const config::RunConfig& config, const estimate::MemoryNeeds& needs) {
  if (config.device != "cpu") return {config, needs, kernels::opened_gpu().memory_use()};
  return {config, needs, estimate::host_memory(), needs.engine_weights + needs.staged_weights};
}

std::unique_ptr<EngineRanks> start_ranks(const EngineStart& start,
                                         const cluster::RunIdentity& identity, const Clock& clock,
                                         std::function<void(const std::string&)> on_lost) {
  const config::RunConfig& config = start.config;
  if (config.rollout_num_gpus_per_engine == 1) return nullptr;
  const bool trains_adapters = config.trains_adapters();
  using std::chrono::milliseconds;
  return std::make_unique<EngineRanks>(
      EngineRanksConfig{
          .start =
              {.directory = trains_adapters ? base_directory(config) : config.hf_checkpoint.get(),
               .device = config.device,
               .dtype = config.dtype,
               .loads_weights = trains_adapters,
               .trains_adapters = trains_adapters ? std::optional(config) : std::nullopt,
               .has_codes = config.has_codes(),
               .computes_drafts = engine_draft_layers(config) == model::DraftLayers::kComputed,
               .num_ranks = static_cast<int>(config.rollout_num_gpus_per_engine),
               .num_threads = start.num_threads,
               .collective_milliseconds =
                   milliseconds(std::chrono::minutes(config.distributed_timeout_minutes)).count()},
          .noun = fmt::format("engine_{}_rank", start.index),
          .identity = identity,
          .log_folder = start.log_folder,
          .silence_limit = milliseconds_of(config.worker_timeout_seconds),
          .on_lost = std::move(on_lost)},
      clock);
}

/// Handles of all that new weights are written to.
std::vector<std::string> exported(const model::Weights& weights) {
  std::vector<std::string> handles;
  for (const Tensor& buffer : weights.buffers().numbers())
    handles.push_back(kernels::opened_gpu().export_memory(buffer));
  return handles;
}

/// Whether the ranks that train bring codes into them, for an engine that stands still meanwhile.
bool has_codes_brought(const config::RunConfig& config, model::Network& weights) {
  return config.takes_turns() && !config.keeps_engine_weights && weights.weights().has_formats();
}

}  // namespace

EngineRole::EngineRole(const EngineStart& start, const cluster::RunIdentity& identity,
                       const Clock& clock, std::function<void(const std::string&)> on_lost)
    : identity_(identity), ranks_(start_ranks(start, identity, clock, std::move(on_lost))) {
  const config::RunConfig& config = start.config;
  const comm::Mesh& mesh = ranks_ ? ranks_->mesh() : comm::Mesh::single();
  const bool drafts = engine_draft_layers(config) == model::DraftLayers::kComputed;
  const model::ModelConfig shape = drafts
                                       ? model::read_config_with_drafts(config.hf_checkpoint.get())
                                       : model::read_model_config(config.hf_checkpoint);
  const model::Precision precision = engine_precision(config);
  const auto make_networks = [&] {
    if (!config.trains_adapters()) {
      first_ = model::make_blank_network(shape, precision, mesh);
      other_ = model::make_blank_network(shape, precision, mesh);
      return;
    }
    // Updates bring the adapter alone.
    first_ = model::load_network(base_directory(config), precision, mesh);
    add_run_adapters(config, *first_, "", mesh);
    other_ = model::with_another_adapter(*first_, precision, mesh);
  };
  if (precision.device.is_cpu()) {
    device_ = "the CPU";
    make_networks();
  } else {
    device_ = kernels::opened_gpu().description();
    kernels::opened_gpu().make_exportable(make_networks);
    if (!ranks_) {  // each rank has slices: the trainer does not know them
      networks_.running_handles = exported(first_->trained());
      networks_.second_handles = exported(other_->trained());
    }
  }
  networks_.running = first_.get();
  networks_.second = other_.get();
  const estimate::MemoryPlan plan = plan_of(
      config, estimate::engine_memory_needs(config, *first_, precision, start.longest_prompt));
  memory_ = plan.lines();
  this->start(start, plan.kv_cache_bytes(), nullptr, clock);
}

EngineRole::EngineRole(const EngineStart& start, const cluster::RunIdentity& identity,
                       model::Network& weights, EngineGroup* group, const Clock& clock)
    : identity_(identity) {
  networks_.running = &weights;
  if (!start.config.shares_weights() && !has_codes_brought(start.config, weights)) {
    first_ = make_blank_copy(weights, engine_precision(start.config));
    networks_.running = first_.get();
    in_place_ = engine::FromNetwork{&weights};
  }
  this->start(start, start.kv_cache_bytes, group, clock);
}

void EngineRole::start(const EngineStart& start, int64_t kv_cache_bytes, EngineGroup* group,
                       const Clock& clock) {
  const config::RunConfig& config = start.config;
  // No template is rendered here: requests are tokens.
  text_ = setup::load_model_text(config.hf_checkpoint, /*needs_template=*/false, {});
  engine::EngineConfig engine = make_engine_config(config, text_, kv_cache_bytes);
  engine.num_threads = start.num_threads;
  engine.stages_weights = std::holds_alternative<engine::FromNetwork>(in_place_);
  engine.on_activity = [this](engine::Activity activity) { tell_activity(activity); };
  engine::MakeStepRunner make_runner = engine::make_step_runner;
  if (ranks_) {
    engine.mesh = &ranks_->mesh();
    make_runner = ranks_->make_runner();
  } else if (group != nullptr) {
    engine.mesh = &group->mesh();
    make_runner = group->make_runner();
  }
  engine_ = std::make_unique<engine::Engine>(*networks_.running, engine, clock, make_runner);
}

EngineReady EngineRole::ready() const {
  return {
      .max_request_tokens = engine_->max_request_tokens(), .device = device_, .memory = memory_};
}

KeptEngineState EngineRole::state() const {
  const Expected<WeightChecksums> checksums =
      engine_->check_weights(engine::WeightCheck::kChecksum);
  return {.ready = ready(),
          .version = engine_->weight_version(),
          .checksum = checksums ? combined(*checksums) : 0};
}

void EngineRole::tell_activity(engine::Activity activity) {
  const std::lock_guard lock(mutex_);
  activity_ = activity;
  if (server_ != nullptr) server_->tell_activity(activity);
}

int64_t EngineRole::serve(int descriptor) {
  engine::EngineServerConfig config;
  config.last_copy_seconds = [this] { return engine_->last_copy_seconds(); };
  config.why_refused = [this](std::string_view greeting) {
    return cluster::why_refused(identity_, greeting);
  };
  config.epoch = identity_.epoch;
  config.in_place = in_place_;
  if (ranks_) {
    config.pass_weights_on = [this](std::string_view piece) {
      ranks_->followers().tell(engine::RankOrder::kWeights, piece);
    };
  }
  engine::EngineServer server(*engine_, descriptor, networks_, std::move(config));
  const auto tell_through = [this](engine::EngineServer* to) {
    const std::lock_guard lock(mutex_);
    server_ = to;
    if (to != nullptr) to->tell_activity(activity_);
  };
  tell_through(&server);
  const std::shared_ptr<void> at_end(nullptr, [&](void*) { tell_through(nullptr); });
  server.serve();
  return server.num_requests();
}

}  // namespace slime::roles
