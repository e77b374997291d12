#include "loop/run_engines.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "loop/run_networks.h"
#include "loop/shared_base.h"
#include "model/placement.h"
#include "model/weight_checksums.h"
#include "roles/engine_workers.h"
#include "roles/engine_workers_config.h"
#include "roles/external_engines.h"
#include "roles/networks.h"
#include "roles/rank_engines.h"
#include "roles/run_start.h"
#include "setup/evaluation_plan.h"

namespace slime::loop {
namespace {

/// Engines beside the trainer have a part of the cores for themselves.
int64_t engine_threads(const config::RunConfig& config) {
  if (config.takes_turns() || config.device != "cpu") return 0;
  if (config.rollout_num_threads > 0) return config.rollout_num_threads;
  // Without --train-async they generate while nobody trains.
  return config.train_async ? std::max<int64_t>(1, cores_of(config) / 2) : cores_of(config);
}

/// What the engines call the weights that the run begins with.
WeightVersion first_version(const Stations& run) {
  const StartPoint& start = run.course.start;
  const setup::RunSchedule& schedule = run.course.schedule;
  const json::value* saved =
      start.checkpoint ? start.checkpoint->run.if_contains("weight_version") : nullptr;
  // Also where `slime train` goes on: groups that wait have tokens of those versions.
  if (saved == nullptr || !saved->is_int64())
    return schedule.first_step / schedule.steps_per_update;
  const json::value* published = start.checkpoint->run.if_contains("is_published");
  const bool was_published = published != nullptr && published->is_bool()
                                 ? published->get_bool()
                                 : schedule.publishes_after(start.checkpoint->iteration);
  return setup::RunSchedule::version_from(saved->get_int64(), was_published);
}

engine::RunningRequests running_at_updates(const config::RunConfig& config) {
  if (!config.train_async || config.kv_on_update == "recompute")
    return engine::RunningRequests::kRecompute;
  return config.kv_on_update == "drop" ? engine::RunningRequests::kDrop
                                       : engine::RunningRequests::kKeep;
}

/// Of an engine with weights of its own; the first update makes them the trainer's.
std::unique_ptr<roles::Engines> engine_beside(Stations& run, const engine::EngineConfig& config,
                                              WeightVersion version,
                                              engine::RunningRequests running) {
  std::unique_ptr<model::Network> own;
  run.records.memory.explain_shortage(estimate::Phase::kGenerate, [&] {
    // The trainer has it where it trains it.
    const bool adds_layer =
        roles::engine_draft_layers(run.config) == model::DraftLayers::kComputed &&
        run.topology.network->num_draft_layers() == 0;
    own = adds_layer
              ? model::load_network(weights_directory(run), roles::engine_precision(run.config),
                                    comm::Mesh::single(), model::DraftLayers::kComputed)
              : roles::make_blank_copy(*run.topology.network, roles::engine_precision(run.config));
  });
  const roles::Turns turns{.takes = run.config.takes_turns(),
                           .offloads = run.records.memory.plan().offloads()};
  return std::make_unique<roles::EngineBeside>(*run.topology.network, std::move(own), config,
                                               version, running, turns, run.records.memory,
                                               run.launch.clock);
}

/// What is trained, where it is whole in this process.
model::Network* whole_here(const Stations& run) {
  return trains(run.config) ? run.topology.network.get() : nullptr;
}

roles::Engines::Hear on_timeline(Stations& run) {
  return [&timeline = run.records.timeline](int index, engine::Activity activity) {
    timeline.enter(report::engine_lane(index), report::engine_phase(activity));
  };
}

/// Those of the ranks that train; `plan`: of rank 0.
std::unique_ptr<roles::Engines> start_rank_engines(Stations& run, roles::TrainersApart& trainers,
                                                   WeightVersion version,
                                                   engine::RunningRequests running) {
  const config::RunConfig& config = run.config;
  const bool is_on_each = config.has_engine_on_each_rank();
  int64_t threads = run.topology.engine_threads;  // of each, where they do not share the trainer's
  if (threads == 0 && config.device == "cpu")
    threads = std::max<int64_t>(1, cores_of(config) / (is_on_each ? config.world_size() : 1));
  const roles::RankEnginesConfig engines{
      .identity = run.launch.identity,
      .start = {.config = config,
                .kv_cache_bytes = run.records.memory.plan().kv_cache_bytes(),
                .num_threads = static_cast<int>(threads)},
      .running = running,
      .offloads = run.records.memory.plan().offloads(),
      .hear = on_timeline(run)};
  std::unique_ptr<model::Network> published;
  if (setup::evaluates_beside(config)) published = load_on_host(run);
  return std::make_unique<roles::RankEngines>(trainers, engines, version, std::move(published),
                                              run.records.memory, run.launch.clock);
}

std::unique_ptr<roles::Engines> start_engine_workers(Stations& run, WeightVersion version,
                                                     engine::RunningRequests running) {
  const config::RunConfig& config = run.config;
  const int64_t threads = std::max<int64_t>(
      1, run.topology.engine_threads / (run.launch.hosts.placement.most_engines_of_a_node() *
                                        config.rollout_num_gpus_per_engine));
  roles::EngineWorkersConfig workers = roles::engine_workers_config(
      config,
      {.config = config,
       .longest_prompt = run.data.longest_prompt(),
       .num_threads = static_cast<int>(threads)},
      run.records.folder.worker_logs(), running, run.launch.hosts.placement);
  workers.identity = run.launch.identity;
  if (config.keeps_engines()) {
    workers.kept = run.topology.session.get();
    version = workers.kept->version_of(version, [&run] {
      return combined(model::checksums_of(run.topology.published->weights()));
    });
  }
  return std::make_unique<roles::EngineWorkers>(std::move(workers), *run.topology.published,
                                                whole_here(run), version, run.launch.hosts.launcher,
                                                run.launch.clock, on_timeline(run));
}

std::unique_ptr<roles::Engines> start_external_engines(Stations& run, WeightVersion version) {
  return std::make_unique<roles::ExternalEngines>(roles::external_engines_config(run.config),
                                                  *run.topology.published, whole_here(run), version,
                                                  run.launch.clock);
}

/// Engines that went on without the trainers get the weights with which those begin.
void begin_epoch(Stations& run, WeightVersion version) {
  run.topology.engines->hear_by(on_timeline(run));
  const auto load = [&run](model::Network& own) {
    const at::NoGradGuard no_grad;
    own.trained().copy_from(load_on_host(run)->trained());
  };
  run.topology.engines->begin_epoch(run.launch.identity.epoch, version, whole_here(run), load);
}

/// Otherwise the only network here is the engine's already.
bool has_numbers_to_train(const Stations& run) {
  return trains(run.config) || !run.config.has_codes();
}

}  // namespace

void share_out_threads(Stations& run) {
  const int64_t given = run.config.num_threads;
  const int64_t all = cores_of(run.config);
  if (run.topology.engine_threads == 0) run.topology.engine_threads = engine_threads(run.config);
  if (trains_apart(run.config)) {
    if (given > 0) at::set_num_threads(static_cast<int>(given));
    return;
  }
  const int64_t trainer = std::max<int64_t>(1, all - run.topology.engine_threads);
  if (given > 0 || trainer < all) at::set_num_threads(static_cast<int>(trainer));
}

void start_engines(Stations& run, roles::TrainersApart* apart) {
  if (!run.config.generates()) {
    run.topology.engines = std::make_unique<roles::NoEngines>();
    return;
  }
  const estimate::MemoryPlan& plan = run.records.memory.plan();
  if (plan.offloads() && trains(run.config)) {
    run.topology.trainers->release_memory();
    run.records.memory
        .release_unused();  // the engine maps pages, which the allocator's own are not
  }
  engine::EngineConfig config =
      roles::make_engine_config(run.config, *run.data.text, plan.kv_cache_bytes());
  config.num_threads = run.topology.engine_threads;
  const bool has_own = !run.config.shares_weights() && has_numbers_to_train(run);
  config.stages_weights = has_own;
  config.on_activity = [&timeline = run.records.timeline](engine::Activity now) {
    timeline.enter(report::engine_lane(0), report::engine_phase(now));
  };
  const WeightVersion version = first_version(run);
  const engine::RunningRequests running = running_at_updates(run.config);
  if (run.topology.engines) {
    begin_epoch(run, version);
  } else if (run.topology.shared != nullptr) {
    run.topology.engines = run.topology.shared->engines(run, version);
  } else if (run.config.has_external_engines()) {
    run.topology.engines = start_external_engines(run, version);
  } else if (run.config.num_engine_workers > 0) {
    run.topology.engines = start_engine_workers(run, version, running);
  } else if (apart != nullptr) {
    run.topology.engines = start_rank_engines(run, *apart, version, running);
  } else if (!has_own) {
    model::Network& network =
        run.topology.drafting ? *run.topology.drafting : *run.topology.network;
    run.topology.engines = std::make_unique<roles::EngineHere>(
        network, config, version, running, plan.offloads(), run.records.memory, run.launch.clock);
  } else {
    run.topology.engines = engine_beside(run, config, version, running);
  }
  if (run.topology.session) run.topology.session->note_ready();
  run.plugins->open_door(run.topology.engines->client(),
                         run.topology.engines->max_request_tokens());
}

}  // namespace slime::loop
