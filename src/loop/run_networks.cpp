#include "loop/run_networks.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "core/error.h"
#include "estimate/memory_needs.h"
#include "kernels/gpu/gpu.h"
#include "loop/shared_base.h"
#include "model/config.h"
#include "model/placement.h"
#include "roles/networks.h"
#include "roles/run_adapters.h"
#include "roles/run_start.h"
#include "roles/trainers_apart.h"
#include "setup/train_config.h"
#include "train/run_parts.h"

namespace slime::loop {

bool trains(const config::RunConfig& config) { return !config.debug_rollout_only; }

bool trains_apart(const config::RunConfig& config) {
  if (!trains(config)) return false;
  return config.world_size() > 1 || (config.num_engine_workers > 0 && config.device == "cpu");
}

int64_t cores_of(const config::RunConfig& config) {
  return config.num_threads > 0 ? config.num_threads : at::get_num_threads();
}

std::string weights_directory(const Stations& run) { return run.course.start.weights; }

namespace {

/// Of a network in this process while ranks train elsewhere: the same weights, in the host's memory.
model::Precision host_precision(const config::RunConfig& config) {
  if (config.device == "cpu") return model::Precision::of(config.dtype);
  return {.weights = model::Precision::on_gpu(config.dtype).weights, .activations = at::kFloat};
}

}  // namespace

std::unique_ptr<model::Network> load_on_host(const Stations& run) {
  model::Precision precision = host_precision(run.config);
  auto network = model::load_network(weights_directory(run), precision, comm::Mesh::single(),
                                     roles::engine_draft_layers(run.config));
  precision.matrices = roles::engine_matrices(run.config);
  if (precision.matrices != kernels::MatrixFormat::kPlain) {
    // Of the numbers that are trained, also where files have codes of their own.
    const at::NoGradGuard no_grad;
    auto codes = model::make_blank_network(network->config(), precision);
    codes->weights().copy_from(network->weights());
    network = std::move(codes);
  }
  roles::add_run_adapters(run.config, *network, run.course.start.adapter);
  return network;
}

namespace {

void plan_memory(Stations& run, const model::Precision& precision,
                 const train::TrainConfig* trainer, bool is_taken) {
  const Topology& topology = run.topology;
  model::Network& network = topology.network ? *topology.network : *topology.published;
  model::Network& of_engine = topology.drafting ? *topology.drafting : network;
  estimate::MemoryNeeds needs = estimate::memory_needs(
      run.config, of_engine, network, precision, trainer, roles::layout_of(run.config),
      run.config.generates(), run.data.longest_prompt());
  // Of what the engine has alone.
  if (&of_engine != &network) needs.whole_weights -= network.weights().num_bytes();
  if (topology.shared != nullptr)
    needs.other_adapters = topology.shared->bytes_beside(network.trained().num_elements());
  run.records.memory.plan(
      run.config, needs,
      needs.whole_weights +
          (is_taken ? needs.train.resident() + needs.train.gradients : needs.train.weights));
}

/// Ranks of a host share its cores, but for those of engines that generate meanwhile.
int threads_of_a_rank(const Stations& run) {
  const config::RunConfig& config = run.config;
  if (config.num_threads > 0) return static_cast<int>(config.num_threads);
  if (config.device != "cpu") {
    const auto cores = static_cast<int>(std::thread::hardware_concurrency());
    const int ranks = run.launch.hosts.placement.most_ranks_of_a_node();
    return std::clamp(cores / ranks, 1, kernels::kMostHostThreads);
  }
  const int64_t beside =
      config.train_async && trains_apart(config) ? run.topology.engine_threads : 0;
  return static_cast<int>(std::max<int64_t>(
      1, (cores_of(config) - beside) / run.launch.hosts.placement.most_ranks_of_a_node()));
}

/// The checkpoint whose parts trainers go on with; null: none.
const train::Checkpoint* restored_checkpoint(const StartPoint& start) {
  if (start.checkpoint) return &*start.checkpoint;
  return start.finetuned ? &*start.finetuned : nullptr;
}

roles::RankStart rank_start(const Stations& run) {
  roles::RankStart rank{
      .config = run.config,
      .collective_milliseconds =
          std::chrono::milliseconds(std::chrono::minutes(run.config.distributed_timeout_minutes))
              .count(),
      .num_rollouts = run.course.schedule.num_steps,
      .first_rollout = run.course.schedule.first_step,
      .plugin_logs = run.records.folder.plugin_logs().string(),
      .num_threads = threads_of_a_rank(run),
      .longest_prompt = run.data.longest_prompt(),
      .weights = weights_directory(run),
      .adapter = run.course.start.adapter,
      .checkpoints = run.records.folder.checkpoints().string()};
  if (const train::Checkpoint* checkpoint = restored_checkpoint(run.course.start)) {
    rank.checkpoint = checkpoint->directory.string();
    rank.iteration = checkpoint->iteration;
    rank.left_out = run.course.start.left_out;
  }
  if (run.course.start.checkpoint) rank.last_checkpoint = run.course.start.checkpoint->iteration;
  return rank;
}

/// Nothing but the shape of the model.
std::unique_ptr<model::Network> shape_of(const config::RunConfig& config) {
  model::Precision precision = host_precision(config);
  precision.device = at::kMeta;
  return model::make_blank_network(model::read_model_config(config.hf_checkpoint), precision);
}

/// The weights of engines in workers.
void load_published(Stations& run) {
  if (run.config.num_engine_workers == 0 || run.topology.published) return;  // carried
  run.records.memory.explain_shortage(estimate::Phase::kGenerate,
                                      [&] { run.topology.published = load_on_host(run); });
}

/// The same where the trained network is here: on its device, or on the host where that has no room.
void copy_published(Stations& run, model::Precision precision) {
  if (run.topology.published) return;  // carried
  if (run.records.memory.plan().publishes_on_host())
    precision = {.weights = precision.weights, .activations = at::kFloat};
  precision.matrices = roles::engine_matrices(run.config);
  run.records.memory.explain_shortage(estimate::Phase::kTrain, [&] {
    const at::NoGradGuard no_grad;
    run.topology.published = model::make_blank_network(run.topology.network->config(), precision);
    run.topology.published->weights().copy_from(run.topology.network->weights());
    if (run.topology.network->adapters() == nullptr) return;
    roles::add_run_adapters(run.config, *run.topology.published, run.course.start.adapter);
    run.topology.published->trained().copy_from(run.topology.network->trained());
  });
}

/// All ranks are workers; they load while this process does.
roles::TrainersApart* open_trainers_apart(Stations& run, const train::Warn& note) {
  auto apart = std::make_unique<roles::TrainersApart>(rank_start(run), run.launch.identity,
                                                      run.records.folder.worker_logs(),
                                                      run.launch.hosts, run.launch.clock);
  load_published(run);
  train::TrainConfig config = setup::make_train_config(run.config, run.course.schedule.num_steps,
                                                       run.topology.model.has_experts());
  plugin::TrainerFunctions::name_in(run.config, config);
  run.records.memory.plan_elsewhere(apart->open(shape_of(run.config), config, note),
                                    apart->memory_gauge());
  roles::TrainersApart* const opened = apart.get();
  run.topology.trainers = std::move(apart);
  return opened;
}

/// What is trained where engine and trainer have the same numbers: of the network that the engine drafts with all
/// that stands before its draft layers.
std::unique_ptr<model::Network> load_shared(Stations& run, model::Precision precision) {
  run.topology.drafting = model::load_network(weights_directory(run), precision,
                                              comm::Mesh::single(), model::DraftLayers::kComputed);
  precision.shared = &run.topology.drafting->weights();
  return model::load_network(weights_directory(run), precision);
}

std::unique_ptr<model::Network> load_trained(Stations& run, const model::Precision& precision) {
  if (run.topology.shared != nullptr)
    return run.topology.shared->network(weights_directory(run), precision);
  const model::DraftLayers trained = roles::trained_draft_layers(run.config);
  if (trained == model::DraftLayers::kComputed)
    return model::load_network(weights_directory(run), precision, comm::Mesh::single(), trained);
  const bool drafts = run.config.generates() && run.config.num_engine_workers == 0 &&
                      roles::engine_draft_layers(run.config) == model::DraftLayers::kComputed;
  if (drafts && run.config.shares_weights()) return load_shared(run, precision);
  return model::load_network(weights_directory(run), precision);
}

/// The only rank is in this process.
void open_trainers_here(Stations& run, const model::Precision& precision, const train::Warn& note) {
  const config::RunConfig& config = run.config;
  run.records.memory.explain_shortage(estimate::Phase::kTrain, [&] {
    run.topology.network = load_trained(run, precision);
    roles::add_run_adapters(config, *run.topology.network, run.course.start.adapter);
  });
  train::TrainConfig trainer = setup::make_train_config(
      config, run.course.schedule.num_steps, run.topology.network->config().has_experts());
  const comm::Mesh& mesh = comm::Mesh::single();
  trainer.frozen = roles::frozen_names(config, run.topology.network->trained(), mesh);
  run.topology.functions->set_in(trainer, run.course.schedule.first_step);
  plan_memory(run, precision, &trainer, false);  // what does not fit is explained
  std::unique_ptr<roles::TrainersHere> here;
  run.records.memory.explain_shortage(estimate::Phase::kTrain, [&] {
    here = std::make_unique<roles::TrainersHere>(
        *run.topology.network, trainer,
        roles::load_other_networks(config, *run.topology.network, precision, mesh),
        run.launch.clock);
  });
  if (const train::Checkpoint* checkpoint = restored_checkpoint(run.course.start))
    here->restore(*checkpoint, run.course.start.left_out, note);
  run.topology.trainers = std::move(here);
  plan_memory(run, precision, &trainer, true);
  if (config.num_engine_workers > 0) copy_published(run, precision);
}

/// Nothing is trained.
void open_no_trainers(Stations& run, const model::Precision& precision) {
  run.topology.trainers = std::make_unique<roles::NoTrainers>();
  std::unique_ptr<model::Network>& network =
      run.config.num_engine_workers > 0 ? run.topology.published : run.topology.network;
  run.records.memory.explain_shortage(estimate::Phase::kGenerate, [&] {
    network = model::load_network(weights_directory(run), precision, comm::Mesh::single(),
                                  roles::engine_draft_layers(run.config));
    roles::add_run_adapters(run.config, *network, run.course.start.adapter);
  });
  plan_memory(run, precision, nullptr, false);
}

}  // namespace

namespace {

/// Of flags that leave parts of the run out (train/run_parts.h), at the start and in checkpoints.
std::vector<std::string> what_is_forgotten(const config::RunConfig& config,
                                           const StartPoint& start) {
  using enum train::RunPart;
  std::vector<train::RunPart> has{kOptimizer};
  if (config.has_critic()) has.insert(has.end(), {kCritic, kCriticHead, kCriticOptimizer});
  if (config.ref_update_interval) has.push_back(kReference);
  if (config.has_advantages() && config.keep_old_actor)
    has.insert(has.end(), {kOldActor, kRolloutActor});
  has.insert(has.end(), {kSchedule, kCounters, kData});
  uint32_t flags = start.left_out;
  if (config.no_save_optim) flags |= train::kNoSaveOptim;
  std::vector<std::string> lines = train::forgotten(flags, has);
  if (config.reset_optimizer_states) {
    lines.emplace_back(
        "--reset-optimizer-states: Adam's moments and step counters are zero at the beginning of "
        "each rollout step");
  }
  return lines;
}

/// Tokenizer, engines and limits follow --hf-checkpoint.
void check_same_model(const config::RunConfig& config, const std::string& weights,
                      const model::ModelConfig& shape) {
  if (weights == config.hf_checkpoint) return;
  const model::ModelConfig named = model::read_model_config(config.hf_checkpoint);
  std::vector<std::string> problems;
  const auto same = [&](const char* what, const auto& one, const auto& other) {
    if (one == other) return;
    problems.push_back(
        fmt::format("the weights of {} are of another model than --hf-checkpoint {}: {} {} and {}",
                    weights, config.hf_checkpoint, what, one, other));
  };
  same("model_type", shape.model_type, named.model_type);
  same("num_hidden_layers", shape.num_layers, named.num_layers);
  same("hidden_size", shape.hidden_size, named.hidden_size);
  same("vocab_size", shape.vocab_size, named.vocab_size);
  same("num_attention_heads", shape.num_heads, named.num_heads);
  same("num_key_value_heads", shape.num_kv_heads, named.num_kv_heads);
  if (!problems.empty()) throw ConfigError(problems);
}

}  // namespace

namespace {

/// Of --rollout-drafts suffix+mtp, of which half has no effect.
std::string note_of_drafts(const config::RunConfig& config, const model::ModelConfig& model) {
  if (!config.generates() || !config.names_draft_layer() || !config.names_texts()) return "";
  const std::string why = model::why_no_draft_layers(model);
  if (why.empty()) return "";
  return fmt::format("--rollout-drafts {}: guesses come from texts alone: {}",
                     config.rollout_drafts.peek(), why);
}

}  // namespace

roles::TrainersApart* load_networks(Stations& run, std::vector<std::string>& notes) {
  const auto note = [&notes](const std::string& line) { notes.push_back(line); };
  if (run.config.device != "cpu" && run.config.num_threads > kernels::kMostHostThreads) {
    note(fmt::format("--num-threads {}: a process with a GPU has {}", run.config.num_threads,
                     kernels::kMostHostThreads));
  }
  const model::ModelConfig shape = model::read_model_config(weights_directory(run));
  run.topology.model = shape;
  roles::check_shape(run.config, shape);
  check_same_model(run.config, weights_directory(run), shape);
  if (const std::string line = note_of_drafts(run.config, shape); !line.empty()) note(line);
  roles::TrainersApart* apart = nullptr;
  if (trains_apart(run.config)) {
    apart = open_trainers_apart(run, note);
  } else {
    const auto precision = model::precision_on(run.config.device, run.config.dtype);
    trains(run.config) ? open_trainers_here(run, precision, note)
                       : open_no_trainers(run, roles::engine_precision(run.config));
  }
  if (const auto& checkpoint = run.course.start.checkpoint) {
    run.records.memory.set_last_checkpoint(checkpoint->iteration);
    note(fmt::format("continuing after rollout {} of {}", checkpoint->iteration,
                     checkpoint->directory.string()));
  }
  if (trains(run.config)) {
    for (const std::string& line : what_is_forgotten(run.config, run.course.start)) note(line);
  }
  return apart;
}

}  // namespace slime::loop
