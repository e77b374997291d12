#include "roles/engine_group.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>
#include <vector>

#include "comm/nccl_mesh.h"
#include "comm/socket_mesh.h"
#include "core/error.h"
#include "engine/ranks/following_rank.h"
#include "engine/ranks/leading_runner.h"
#include "engine/ranks/peer_group.h"
#include "net/handshake.h"
#include "net/tcp.h"
#include "roles/follower_greeting.h"
#include "roles/rank_tasks.h"

namespace slime::roles {
namespace {

constexpr const char* kWhat = "the ranks of an engine find one another";
constexpr std::chrono::milliseconds kListenerInterval{50};

/// "PORT ADDRESS" of who leads.
struct Meeting {
  int port = 0;
  std::string address;
};

std::string to_text(const Meeting& meeting) {
  return fmt::format("{} {}", meeting.port, meeting.address);
}

Meeting meeting_from(const std::string& text) {
  Meeting meeting;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, meeting.port);
  check(error == std::errc{} && rest != end, "who leads an engine says where");
  meeting.address.assign(rest + 1, end);
  return meeting;
}

}  // namespace

EngineGroup::EngineGroup(const comm::Mesh& trainers, const EngineGroupConfig& config) {
  check(trainers.world().size() % config.size == 0, "engines divide the ranks that train");
  const int place = trainers.rank() % config.size, leader = trainers.rank() - place;
  std::optional<comm::Rendezvous> rendezvous;
  if (place == 0) rendezvous.emplace(config.address);
  const std::vector<std::string> told = trainers.world().all_gather(
      to_text(Meeting{rendezvous ? rendezvous->port() : 0, config.address}), kWhat);
  const Meeting meeting = meeting_from(told[static_cast<std::size_t>(leader)]);
  bool is_on_one_host = true;
  for (int rank = leader; rank < leader + config.size; ++rank)
    is_on_one_host &= meeting_from(told[static_cast<std::size_t>(rank)]).address == meeting.address;
  const comm::SocketMeshConfig own{.rank = place,
                                   .layout = comm::engine_layout(config.size),
                                   .address = config.address,
                                   .meeting = meeting.address,
                                   .port = meeting.port,
                                   .token = config.identity.token,
                                   .epoch = config.identity.epoch,
                                   .connect_timeout = kRankConnectTimeout,
                                   .timeout = config.timeout};
  comm::Rendezvous* const mine = rendezvous ? &*rendezvous : nullptr;
  mesh_ = config.is_on_gpus
              ? comm::make_nccl_mesh(own, mine,
                                     engine::with_peer_collectives(config.timeout, !is_on_one_host))
              : comm::make_socket_mesh(own, mine);
  place == 0 ? meet_followers(config) : meet_leader(config, meeting.address);
}

EngineGroup::~EngineGroup() {
  followers_.reset();
  if (to_leader_ >= 0) ::close(to_leader_);
}

void EngineGroup::meet_followers(const EngineGroupConfig& config) {
  net::HandshakeListener listener(net::listen_on(config.address, 0), config.identity.token);
  mesh_->world().all_gather(fmt::format("{}", listener.port()), kWhat);
  std::vector<int> connections(static_cast<std::size_t>(config.size - 1), -1);
  const auto limit = std::chrono::steady_clock::now() + kRankConnectTimeout;
  for (int missing = config.size - 1; missing > 0;) {
    if (std::chrono::steady_clock::now() > limit) {
      for (const int socket : connections)
        if (socket >= 0) ::close(socket);
      throw comm::GroupError(
          fmt::format("{} of {} ranks of an engine did not come", missing, config.size));
    }
    listener.wait(kListenerInterval);
    for (const auto& caller : listener.look()) {
      const auto rank =
          caller->claim().role == kFollowerRole
              ? rank_of_follower(caller->claim().text, config.identity.epoch, config.size)
              : std::nullopt;
      if (!rank || connections[static_cast<std::size_t>(*rank - 1)] >= 0) {
        caller->refuse("nobody waits for it");
        continue;
      }
      connections[static_cast<std::size_t>(*rank - 1)] = caller->welcome();
      --missing;
    }
  }
  followers_ = std::make_unique<engine::Followers>(connections);
}

void EngineGroup::meet_leader(const EngineGroupConfig& config, const std::string& address) {
  const std::string port = mesh_->world().all_gather("", kWhat).front();
  try {
    to_leader_ = net::connect_to(address, std::stoi(port), kRankConnectTimeout);
    net::introduce(
        to_leader_, config.identity.token,
        {.role = kFollowerRole, .text = to_follower_greeting(mesh_->rank(), config.identity.epoch)},
        kRankConnectTimeout);
  } catch (const std::exception& error) {
    if (to_leader_ >= 0) ::close(to_leader_);
    throw comm::GroupError(
        fmt::format("the first rank of an engine cannot be reached: {}", error.what()));
  }
}

engine::MakeStepRunner EngineGroup::make_runner() {
  return [this](model::Network& network, const engine::StepRunnerConfig& config) {
    return std::make_unique<engine::LeadingRunner>(engine::make_step_runner(network, config),
                                                   *followers_, mesh_->tp(), config);
  };
}

void EngineGroup::follow(model::Network& network, const model::Precision& precision) {
  const int own = ::dup(to_leader_);  // stop_following() has its own
  try {
    engine::FollowingRank(own, *mesh_, precision, network).follow();
  } catch (...) {
    stop_following();  // the leader would wait for answers and in collectives
    throw;
  }
}

void EngineGroup::stop_following() {
  if (to_leader_ >= 0) ::shutdown(to_leader_, SHUT_RDWR);
}

}  // namespace slime::roles
