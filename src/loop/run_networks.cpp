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
#include "model/config.h"
#include "model/placement.h"
#include "roles/networks.h"
#include "roles/run_start.h"
#include "roles/trainers_apart.h"
#include "setup/train_config.h"
#include "train/run_parts.h"

namespace slime::loop {

bool trains(const config::RunConfig& config) { return !config.debug_rollout_only; }

bool trains_apart(const config::RunConfig& config) {
  const bool has_engine_here = config.generates() && config.num_engine_workers == 0;
  return trains(config) && config.device == "cpu" && !has_engine_here &&
         (config.world_size() > 1 || config.num_engine_workers > 0);
}

int64_t cores_of(const config::RunConfig& config) {
  return config.num_threads > 0 ? config.num_threads : at::get_num_threads();
}

std::string weights_directory(const Stations& run) { return run.start.weights; }

namespace {

void plan_memory(Stations& run, const model::Precision& precision,
                 const train::TrainConfig* trainer, bool is_taken) {
  const estimate::MemoryNeeds needs = estimate::memory_needs(
      run.config, run.shape(), run.part ? *run.part : run.shape(), precision, trainer,
      run.config.generates(), run.dataset ? run.dataset->longest_prompt() : 0);
  run.memory.plan(run.config, needs,
                  needs.whole_weights + (is_taken ? needs.train.resident() + needs.train.gradients
                                                  : needs.train.weights));
}

/// Ranks of a host share its cores, but for those of engines that generate meanwhile.
int threads_of_a_rank(const Stations& run) {
  const config::RunConfig& config = run.config;
  if (config.num_threads > 0) return static_cast<int>(config.num_threads);
  if (config.device != "cpu") {
    const auto cores = static_cast<int>(std::thread::hardware_concurrency());
    const int ranks = run.hosts.placement.most_ranks_of_a_node();
    return std::clamp(cores / ranks, 1, kernels::kMostHostThreads);
  }
  const int64_t beside = config.train_async && trains_apart(config) ? run.engine_threads : 0;
  return static_cast<int>(std::max<int64_t>(
      1, (cores_of(config) - beside) / run.hosts.placement.most_ranks_of_a_node()));
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
      .num_rollouts = run.schedule.num_steps,
      .first_rollout = run.schedule.first_step,
      .plugin_logs = run.folder.plugin_logs().string(),
      .num_threads = threads_of_a_rank(run),
      .weights = weights_directory(run)};
  if (const train::Checkpoint* checkpoint = restored_checkpoint(run.start)) {
    rank.checkpoint = checkpoint->directory.string();
    rank.iteration = checkpoint->iteration;
    rank.left_out = run.start.left_out;
  }
  return rank;
}

/// The weights of this process: those of engines in workers, or nothing but a shape.
void load_published(Stations& run, const model::Precision& precision) {
  if (run.published) return;  // survivors
  run.memory.explain_shortage(estimate::Phase::kGenerate, [&] {
    run.published = run.config.generates()
                        ? model::load_network(weights_directory(run), precision)
                        : model::make_blank_network(
                              model::read_model_config(run.config.hf_checkpoint), precision);
  });
}

/// The same where the trained network is here: on its device, or on the host where that has no room.
void copy_published(Stations& run, model::Precision precision) {
  if (run.published) return;  // survivors
  if (run.memory.plan().publishes_on_host())
    precision = {.weights = precision.weights, .activations = at::kFloat};
  run.memory.explain_shortage(estimate::Phase::kTrain, [&] {
    const at::NoGradGuard no_grad;
    run.published = model::make_blank_network(run.network->config(), precision);
    run.published->weights().copy_from(run.network->weights());
  });
}

/// All ranks are workers; they load while this process does.
void open_trainers_apart(Stations& run, const model::Precision& precision,
                         const train::Warn& note) {
  auto apart = std::make_unique<roles::TrainersApart>(
      rank_start(run), run.identity, run.folder.worker_logs(), run.hosts, run.clock);
  load_published(run, precision);
  train::TrainConfig config = setup::make_train_config(run.config, run.schedule.num_steps,
                                                       run.published->config().has_experts());
  plugin::TrainerFunctions::name_in(run.config, config);
  plan_memory(run, precision, &config, false);
  apart->open(*run.published, config, note);
  run.trainers = std::move(apart);
}

/// Rank 0, or nobody who trains, is in this process: its network, and the plan of who gets the
/// device's memory.
void open_trainers_here(Stations& run, const model::Precision& precision, const train::Warn& note) {
  const config::RunConfig& config = run.config;
  std::unique_ptr<roles::HostedTrainers> trainers;
  if (trains(config)) {
    trainers = roles::start_trainers(rank_start(run), run.identity, run.folder.worker_logs(),
                                     run.hosts, run.clock);
  } else {
    trainers = std::make_unique<roles::NoTrainers>();
  }
  roles::HostedTrainers& hosted = *trainers;
  run.hosted = trainers.get();
  run.trainers = std::move(trainers);
  const comm::Mesh& mesh = hosted.connect();
  const bool has_whole = mesh.sizes().holds_model_whole();
  run.memory.explain_shortage(estimate::Phase::kTrain, [&] {
    const std::string directory = weights_directory(run);
    roles::EngineGroup* const group = hosted.engine_group();
    const bool is_copied = config.generates() && (!has_whole || group != nullptr);
    const comm::Mesh& of_engine = group != nullptr ? group->mesh() : comm::Mesh::single();
    run.network = model::load_network(directory, precision, is_copied ? of_engine : mesh);
    if (is_copied) run.part = model::load_network(directory, precision, mesh);
  });
  std::optional<train::TrainConfig> trainer;
  if (trains(config)) {
    trainer = setup::make_train_config(config, run.schedule.num_steps,
                                       run.network->config().has_experts());
    trainer->frozen = roles::frozen_names(config, run.trained().weights(), mesh);
    run.functions->set_in(*trainer, run.schedule.first_step);
    plan_memory(run, precision, &*trainer, false);  // what does not fit is explained
    run.memory.explain_shortage(estimate::Phase::kTrain, [&] {
      hosted.open(run.trained(), *trainer, roles::load_other_networks(config, precision, mesh));
    });
    if (const train::Checkpoint* checkpoint = restored_checkpoint(run.start))
      hosted.restore(*checkpoint, run.start.left_out, note);
  }
  plan_memory(run, precision, trainer ? &*trainer : nullptr, trainer.has_value());
  if (config.num_engine_workers > 0) copy_published(run, precision);
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
  if (!config.trains_on_rows() && config.keep_old_actor)
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

void load_networks(Stations& run, std::vector<std::string>& notes) {
  const model::Precision precision = model::precision_on(run.config.device, run.config.dtype);
  const auto note = [&notes](const std::string& line) { notes.push_back(line); };
  if (run.config.device != "cpu" && run.config.num_threads > kernels::kMostHostThreads) {
    note(fmt::format("--num-threads {}: a process with a GPU has {}", run.config.num_threads,
                     kernels::kMostHostThreads));
  }
  const model::ModelConfig shape = model::read_model_config(weights_directory(run));
  roles::check_shape(run.config, shape);
  check_same_model(run.config, weights_directory(run), shape);
  if (trains_apart(run.config)) {
    open_trainers_apart(run, precision, note);
  } else {
    open_trainers_here(run, precision, note);
  }
  if (const auto& checkpoint = run.start.checkpoint) {
    run.memory.set_last_checkpoint(checkpoint->iteration);
    note(fmt::format("continuing after rollout {} of {}", checkpoint->iteration,
                     checkpoint->directory.string()));
  }
  if (trains(run.config)) {
    for (const std::string& line : what_is_forgotten(run.config, run.start)) note(line);
  }
}

}  // namespace slime::loop
