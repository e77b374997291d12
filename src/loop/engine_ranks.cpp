#include "loop/engine_ranks.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <utility>
#include <vector>

#include "comm/unconnected_group.h"
#include "core/error.h"
#include "engine/ranks/following_rank.h"
#include "engine/ranks/leading_runner.h"
#include "loop/trainer_role.h"
#include "model/network.h"
#include "model/placement.h"

namespace slime::loop {
namespace {

comm::GlooConfig meeting(const EngineRankStart& start, const cluster::RunIdentity& identity) {
  return {.rank = start.rank,
          .layout = {.tp = start.num_ranks},
          .port = start.port,
          .token = identity.token,
          .epoch = identity.epoch,
          .connect_timeout = kRankConnectTimeout,
          .timeout = std::chrono::milliseconds(start.collective_milliseconds)};
}

}  // namespace

void check_engine_ranks(const model::ModelConfig& model, int64_t num_ranks, const char* flag) {
  if (num_ranks == 1) return;
  std::vector<std::string> problems;
  const auto divides = [&](const char* what, int64_t count) {
    if (count % num_ranks != 0)
      problems.push_back(
          fmt::format("{} {}: does not divide the model's {} {}", flag, num_ranks, count, what));
  };
  divides("attention heads", model.num_heads);
  if (model.latent.kv_rank == 0) divides("key-value heads", model.num_kv_heads);
  if (!model.delta.in_layer.empty())
    divides("key heads of gated delta nets", model.delta.shape.key_heads);
  // Trainers slice these; what an engine keeps of them between its steps is whole on each rank.
  const auto is_whole = [&](const char* what, bool has) {
    if (!has) return;
    problems.push_back(fmt::format(
        "{} {}: engines have {} whole so far; use tensor parallelism of 1", flag, num_ranks, what));
  };
  is_whole("experts", model.has_experts());
  is_whole("latent attention", model.latent.kv_rank > 0);
  if (!problems.empty()) throw ConfigError(problems);
  const comm::Mesh mesh(
      {.tp = static_cast<int>(num_ranks)}, 0, [](comm::Axis, const std::vector<int>& members) {
        return std::make_unique<comm::UnconnectedGroup>(0, static_cast<int>(members.size()));
      });
  try {  // the layers have the reasons; without memory
    model::make_blank_network(model, {.device = at::kMeta}, mesh);
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("{} {}: {}", flag, num_ranks, error.what()));
  }
}

EngineRanks::EngineRanks(EngineRanksConfig config, const Clock& clock)
    : config_(std::move(config)) {
  EngineRankStart start = config_.start;
  const int count = start.num_ranks - 1;
  workers_ = std::make_unique<cluster::Workers>(
      cluster::WorkersConfig{.noun = config_.noun,
                             .first_rank = 1,
                             .count = count,
                             .identity = config_.identity,
                             .has_data = true,
                             .log_folder = config_.log_folder,
                             .silence_limit = config_.silence_limit,
                             .notice_limit = std::chrono::milliseconds(0),
                             .last_resort = [this](const std::string& why) { end(why); }},
      launcher_, clock);
  std::vector<int> connections;
  for (int rank = 1; rank <= count; ++rank) connections.push_back(workers_->take_data(rank));
  followers_ = std::make_unique<engine::Followers>(connections);
  start.port = rendezvous_.port();
  for (start.rank = 1; start.rank <= count; ++start.rank)
    workers_->send_task(start.rank, to_frame(start));
  start.rank = 0;
  try {
    mesh_ = connect_ranks(start.device != "cpu", meeting(start, config_.identity), &rendezvous_);
  } catch (const comm::GroupError& error) {
    workers_->blame(error.what(), 0);
  }
}

EngineRanks::~EngineRanks() {
  followers_.reset();  // they end what they do before they are told to stop
}

engine::MakeStepRunner EngineRanks::make_runner() {
  return [this](model::Network& network, const engine::StepRunnerConfig& config) {
    return std::make_unique<engine::LeadingRunner>(engine::make_step_runner(network, config),
                                                   *followers_, config,
                                                   [this](const std::string& what) { lose(what); });
  };
}

void EngineRanks::lose(const std::string& what) {
  try {
    workers_->blame(what, 0);
  } catch (const std::exception& error) {
    end(error.what());
  }
}

void EngineRanks::end(const std::string& why) {
  ending_.lock();  // whoever comes second waits for the end of the process
  config_.on_lost(why);
}

void follow_engine(const EngineRankStart& start, const cluster::RunIdentity& identity,
                   int descriptor) {
  at::set_num_threads(start.num_threads);
  const model::Precision precision = model::precision_on(start.device, start.dtype);
  const auto mesh = connect_ranks(start.device != "cpu", meeting(start, identity), nullptr);
  std::unique_ptr<model::Network> network =
      start.loads_weights
          ? model::load_network(start.directory, precision, *mesh)
          : model::make_blank_network(model::read_model_config(start.directory), precision, *mesh);
  engine::FollowingRank rank(descriptor, *mesh, precision, std::move(network));
  rank.follow();
}

}  // namespace slime::loop
