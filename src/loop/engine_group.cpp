#include "loop/engine_group.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>
#include <vector>

#include "comm/gloo_mesh.h"
#include "comm/nccl_mesh.h"
#include "core/error.h"
#include "engine/ranks/following_rank.h"
#include "engine/ranks/leading_runner.h"
#include "engine/ranks/peer_group.h"
#include "loop/rank_tasks.h"
#include "net/frame_channel.h"
#include "net/tcp.h"

namespace slime::loop {
namespace {

constexpr const char* kWhat = "the ranks of an engine find one another";
/// A follower's first frame: its rank in the engine, a space, and the run's greeting.
constexpr uint32_t kGreeting = 1;
constexpr uint64_t kGreetingBytes = 4096;

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

/// Closed with the object.
struct Listening {
  int socket;
  explicit Listening(const std::string& address) : socket(net::listen_on(address, 0)) {}
  ~Listening() { ::close(socket); }
  Listening(const Listening&) = delete;
  Listening& operator=(const Listening&) = delete;
};

/// Milliseconds until then; 0: it is over.
int left_until(std::chrono::steady_clock::time_point limit) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
      limit - std::chrono::steady_clock::now());
  return static_cast<int>(std::max<int64_t>(0, left.count()));
}

/// The first frame, where it comes whole within some seconds: a follower sends it at once.
std::optional<net::Frame> first_frame(net::FrameChannel& channel) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  ::pollfd readable{.fd = channel.descriptor(), .events = POLLIN, .revents = 0};
  while (::poll(&readable, 1, left_until(limit)) == 1) {
    const bool is_open = channel.read_available();
    if (auto frame = channel.next()) return frame;
    if (!is_open) break;
  }
  return std::nullopt;
}

/// The greeting's rank, where it is one of this run's; otherwise -1. A stranger gets no answer.
int rank_of(net::FrameChannel& channel, const cluster::RunIdentity& identity, int size) {
  try {
    const auto frame = first_frame(channel);
    if (!frame || frame->type != kGreeting) return -1;
    const std::string_view text = frame->payload;
    int rank = -1;
    const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), rank);
    const auto used = static_cast<std::size_t>(rest - text.data());
    if (error != std::errc{} || rank < 1 || rank >= size || used == text.size()) return -1;
    return cluster::why_refused(identity, text.substr(used + 1)).empty() ? rank : -1;
  } catch (const net::FrameError&) {
    return -1;
  }
}

}  // namespace

EngineGroup::EngineGroup(const comm::Mesh& trainers, const EngineGroupConfig& config) {
  const int place = trainers.rank() % config.size, leader = trainers.rank() - place;
  std::optional<comm::Rendezvous> rendezvous;
  if (place == 0) rendezvous.emplace(config.address);
  const std::vector<std::string> told = trainers.world().all_gather(
      to_text(Meeting{rendezvous ? rendezvous->port() : 0, config.address}), kWhat);
  const Meeting meeting = meeting_from(told[static_cast<std::size_t>(leader)]);
  bool is_on_one_host = true;
  for (int rank = leader; rank < leader + config.size; ++rank)
    is_on_one_host &= meeting_from(told[static_cast<std::size_t>(rank)]).address == meeting.address;
  const comm::GlooConfig own{.rank = place,
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
              : comm::make_gloo_mesh(own, mine);
  place == 0 ? meet_followers(config) : meet_leader(config, meeting.address);
}

EngineGroup::~EngineGroup() {
  followers_.reset();
  if (to_leader_ >= 0) ::close(to_leader_);
}

void EngineGroup::meet_followers(const EngineGroupConfig& config) {
  const Listening listening(config.address);
  mesh_->world().all_gather(fmt::format("{}", net::port_of(listening.socket)), kWhat);
  std::vector<int> connections(static_cast<std::size_t>(config.size - 1), -1);
  const auto limit = std::chrono::steady_clock::now() + kRankConnectTimeout;
  for (int missing = config.size - 1; missing > 0;) {
    ::pollfd waiting{.fd = listening.socket, .events = POLLIN, .revents = 0};
    if (::poll(&waiting, 1, left_until(limit)) != 1)
      throw comm::GroupError(
          fmt::format("{} of {} ranks of an engine did not come", missing, config.size));
    const int socket = net::accept_from(listening.socket);
    if (socket < 0) continue;
    net::FrameChannel channel(socket, kGreetingBytes);
    const int rank = rank_of(channel, config.identity, config.size);
    if (rank < 0 || connections[static_cast<std::size_t>(rank - 1)] >= 0) continue;
    connections[static_cast<std::size_t>(rank - 1)] = channel.release();
    --missing;
  }
  followers_ = std::make_unique<engine::Followers>(connections);
}

void EngineGroup::meet_leader(const EngineGroupConfig& config, const std::string& address) {
  const std::string port = mesh_->world().all_gather("", kWhat).front();
  try {
    net::FrameChannel channel(net::connect_to(address, std::stoi(port), kRankConnectTimeout));
    const std::string greeting =
        fmt::format("{} {}", mesh_->rank(), cluster::to_greeting(config.identity));
    if (!channel.send(kGreeting, greeting, kRankConnectTimeout))
      throw comm::GroupError("the first rank of an engine is gone");
    to_leader_ = channel.release();
  } catch (const comm::GroupError&) {
    throw;
  } catch (const std::exception& error) {
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
  engine::FollowingRank(own, *mesh_, precision, network).follow();
}

void EngineGroup::stop_following() {
  if (to_leader_ >= 0) ::shutdown(to_leader_, SHUT_RDWR);
}

}  // namespace slime::loop
