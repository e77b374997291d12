#include "roles/rank_engines.h"

#include <fmt/format.h>
#include <unistd.h>

#include "core/error.h"

namespace slime::roles {
namespace {

/// Of a control call; an engine finishes its step first, and an offloaded one maps its pages.
constexpr std::chrono::seconds kAnswerLimit{120};

}  // namespace

RankEngines::RankEngines(HostedTrainers& trainers, const cluster::RunIdentity& identity,
                         const EngineStart& start, model::Network& network,
                         const engine::EngineConfig& config, WeightVersion version,
                         engine::RunningRequests running, bool offloads,
                         const report::RunMemory& memory, const Clock& clock)
    : memory_(memory), running_(running), offloads_(offloads), router_({}, clock) {
  const std::vector<int> sockets = trainers.start_engines(start, network);
  EngineGroup* const group = trainers.engine_group();
  memory_.explain_shortage(estimate::Phase::kGenerate, [&] {
    own_ = std::make_unique<engine::Engine>(
        network, config, clock, group != nullptr ? group->make_runner() : engine::make_step_runner);
  });
  const auto ranks_of_one = static_cast<int>(start.config.ranks_of_own_engine());
  for (int rank = 1; const int socket : sockets) {
    const int its_rank = rank++;
    if (its_rank % ranks_of_one != 0) {  // it follows
      ::close(socket);
      continue;
    }
    others_.push_back(std::make_unique<engine::RemoteEngine>(
        socket, engine::RemoteEngineConfig{.name = fmt::format("the engine of rank {}", its_rank),
                                           .answer_limit = kAnswerLimit,
                                           .on_activity = nullptr,
                                           .greeting = cluster::to_greeting(identity),
                                           .epoch = [epoch = identity.epoch] { return epoch; }}));
  }
  trainers.wait_for_engines();
  engine::or_throw(own_->update_weights({.version = version}));
  engine::or_throw(router_.join(*own_));
  for (const auto& engine : others_) {
    engine::or_throw(engine->update_weights({.version = version}));
    engine::or_throw(router_.join(*engine));
  }
}

RankEngines::~RankEngines() { router_.give_up("the run ends"); }

void RankEngines::yield_to_training() {
  engine::or_throw(router_.pause(engine::PauseMode::kInPlace));
  if (offloads_) engine::or_throw(router_.sleep());
}

void RankEngines::update_weights(WeightVersion version, const FetchWeights& /*fetch*/) {
  engine::or_throw(router_.update_weights({.version = version, .running = running_}));
  if (offloads_) {
    memory_.release_unused();
    memory_.explain_shortage(estimate::Phase::kGenerate,
                             [this] { engine::or_throw(router_.wake()); });
  }
  engine::or_throw(router_.resume());
}

}  // namespace slime::roles
