#include "roles/engine_ranks.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <utility>
#include <vector>

#include "comm/nccl_mesh.h"
#include "comm/unconnected_group.h"
#include "core/error.h"
#include "engine/ranks/following_rank.h"
#include "engine/ranks/leading_runner.h"
#include "engine/ranks/peer_group.h"
#include "kernels/gpu/gpu.h"
#include "model/network.h"
#include "model/placement.h"
#include "roles/run_adapters.h"

namespace slime::roles {
namespace {

comm::SocketMeshConfig meeting(const EngineRankStart& start, const cluster::RunIdentity& identity) {
  return {.rank = start.rank,
          .layout = comm::engine_layout(start.num_ranks),
          .port = start.port,
          .token = identity.token,
          .epoch = identity.epoch,
          .connect_timeout = kRankConnectTimeout,
          .timeout = std::chrono::milliseconds(start.collective_milliseconds)};
}

std::unique_ptr<comm::Mesh> connect(const EngineRankStart& start,
                                    const cluster::RunIdentity& identity,
                                    comm::Rendezvous* rendezvous) {
  const comm::SocketMeshConfig config = meeting(start, identity);
  if (start.device == "cpu") return comm::make_socket_mesh(config, rendezvous);
  return comm::make_nccl_mesh(config, rendezvous,
                              engine::with_peer_collectives(config.timeout, start.nccl_alone));
}

/// Ranks of one host; each has the GPU that this process counts as it counts the ranks.
std::vector<cluster::WorkerPlace> places_of(int count, bool is_on_gpus) {
  std::vector<cluster::WorkerPlace> places;
  for (int rank = 1; is_on_gpus && rank <= count; ++rank) places.push_back({.device = rank});
  return places;
}

std::unique_ptr<model::Network> network_of(const EngineRankStart& start,
                                           const model::Precision& precision,
                                           const comm::Mesh& mesh) {
  if (start.loads_weights) {
    auto network = model::load_network(
        start.directory, precision, mesh,
        start.computes_drafts ? model::DraftLayers::kComputed : model::DraftLayers::kCarried);
    if (start.trains_adapters) add_run_adapters(*start.trains_adapters, *network, "", mesh);
    return network;
  }
  const model::ModelConfig shape = start.computes_drafts
                                       ? model::read_config_with_drafts(start.directory)
                                       : model::read_model_config(start.directory);
  return start.made_up_bound > 0
             ? model::make_uniform_network(shape, precision, start.made_up_bound, mesh)
             : model::make_blank_network(shape, precision, mesh);
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
  if (!problems.empty()) throw ConfigError(problems);
  const comm::Mesh mesh(comm::engine_layout(static_cast<int>(num_ranks)), 0,
                        [](comm::Axis, const std::vector<int>& members) {
                          return std::make_unique<comm::UnconnectedGroup>(
                              0, static_cast<int>(members.size()));
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
  const bool is_on_gpus = start.device != "cpu";
  if (is_on_gpus && kernels::count_gpus() < start.num_ranks) {
    throw ConfigError(fmt::format("an engine of {} ranks needs {} GPUs, {} are visible",
                                  start.num_ranks, start.num_ranks, kernels::count_gpus()));
  }
  workers_ = std::make_unique<cluster::Workers>(
      cluster::WorkersConfig{.noun = config_.noun,
                             .first_rank = 1,
                             .count = count,
                             .identity = config_.identity,
                             .has_data = true,
                             .places = places_of(count, is_on_gpus),
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
  model::precision_on(start.device, start.dtype);  // opens the GPU, as the others do now
  try {
    mesh_ = connect(start, config_.identity, &rendezvous_);
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
                                                   *followers_, mesh_->tp(), config,
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
  model::Precision precision = model::precision_on(start.device, start.dtype);
  if (start.has_codes) precision.matrices = kernels::MatrixFormat::kFp8Blocks;
  const auto mesh = connect(start, identity, nullptr);
  engine::FollowingRank rank(descriptor, *mesh, precision, network_of(start, precision, *mesh));
  // What is planned for keys and values leaves room for it; later there may be none.
  const bool is_sent = start.trains_adapters || (!start.loads_weights && start.made_up_bound == 0);
  if (precision.device.is_cuda() && is_sent) rank.make_second();
  rank.follow();
}

}  // namespace slime::roles
