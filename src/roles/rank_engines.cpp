#include "roles/rank_engines.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "core/error.h"

namespace slime::roles {
namespace {

/// Of a control call; an engine finishes its step first, and an offloaded one maps its pages.
constexpr std::chrono::seconds kAnswerLimit{120};

/// Whether the worker of this rank serves an engine.
bool leads_engine(const config::RunConfig& config, int64_t rank) {
  if (!config.has_engine_on_each_rank()) return rank == 0;
  return rank % config.ranks_of_own_engine() == 0;
}

}  // namespace

RankEngines::RankEngines(TrainersApart& trainers, const RankEnginesConfig& config,
                         WeightVersion version, std::unique_ptr<model::Network> published,
                         const report::RunMemory& memory, const Clock& clock)
    : trainers_(trainers),
      memory_(memory),
      running_(config.running),
      takes_turns_(config.start.config.takes_turns()),
      offloads_(config.offloads),
      published_(std::move(published)),
      router_({}, clock) {
  const cluster::RunIdentity& identity = config.identity;
  const std::vector<int> sockets = trainers.start_engines(config.start);
  for (std::size_t rank = 0; rank < sockets.size(); ++rank) {
    if (!leads_engine(config.start.config, static_cast<int64_t>(rank))) {
      ::close(sockets[rank]);
      continue;
    }
    const auto index = static_cast<int>(engines_.size());
    engines_.push_back(std::make_unique<engine::RemoteEngine>(
        sockets[rank], engine::RemoteEngineConfig{
                           .name = fmt::format("the engine of rank {}", rank),
                           .answer_limit = kAnswerLimit,
                           .on_activity = [index, hear = config.hear](
                                              engine::Activity activity) { hear(index, activity); },
                           .greeting = cluster::to_greeting(identity),
                           .epoch = [epoch = identity.epoch] { return epoch; }}));
  }
  max_request_tokens_ = trainers.wait_for_engines().max_request_tokens;
  for (const auto& engine : engines_) {
    engine::or_throw(engine->update_weights({.version = version}));
    engine::or_throw(router_.join(*engine));
  }
}

RankEngines::~RankEngines() { router_.give_up("the run ends"); }

void RankEngines::yield_to_training() {
  if (!takes_turns_) return;
  engine::or_throw(router_.pause(engine::PauseMode::kInPlace));
  if (offloads_) engine::or_throw(router_.sleep());
}

void RankEngines::update_weights(WeightVersion version, const FetchWeights& fetch) {
  trainers_.bring_weights();
  if (published_) fetch(*published_);
  engine::or_throw(router_.update_weights({.version = version, .running = running_}));
  go_on();
}

void RankEngines::go_on() {
  if (!takes_turns_) return;
  if (offloads_) {
    trainers_.release_memory();
    memory_.explain_shortage(estimate::Phase::kGenerate,
                             [this] { engine::or_throw(router_.wake()); });
  }
  engine::or_throw(router_.resume());
}

double RankEngines::last_copy_seconds() {
  double longest = 0;
  for (const auto& engine : engines_)
    longest = std::max(longest, engine->last_transfer().copy_seconds);
  return longest;
}

}  // namespace slime::roles
