#include "loop/engine_group.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
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
#include "loop/follower_greeting.h"
#include "loop/rank_tasks.h"
#include "net/frame_channel.h"
#include "net/tcp.h"

namespace slime::loop {
namespace {

constexpr const char* kWhat = "the ranks of an engine find one another";
/// A follower's first frame (loop/follower_greeting.h).
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

using SteadyTime = std::chrono::steady_clock::time_point;

/// Waits until there is something to read or to accept. False: it is later than `limit`.
bool is_readable_before(SteadyTime limit, int descriptor) {
  ::pollfd readable{.fd = descriptor, .events = POLLIN, .revents = 0};
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        limit - std::chrono::steady_clock::now());
    const int found = ::poll(&readable, 1, static_cast<int>(std::max<int64_t>(0, left.count())));
    if (found >= 0 || errno != EINTR) return found == 1;
  }
}

/// The first frame, where it comes whole within some seconds: a follower sends it at once.
std::optional<net::Frame> first_frame(net::FrameChannel& channel) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (is_readable_before(limit, channel.descriptor())) {
    const bool is_open = channel.read_available();
    if (auto frame = channel.next()) return frame;
    if (!is_open) break;
  }
  return std::nullopt;
}

/// Nothing for who is no follower of this run. A stranger gets no answer.
std::optional<int> rank_behind(net::FrameChannel& channel, const cluster::RunIdentity& identity,
                               int size) {
  try {
    const auto frame = first_frame(channel);
    if (!frame || frame->type != kGreeting) return std::nullopt;
    return rank_of_follower(frame->payload, identity, size);
  } catch (const net::FrameError&) {
    return std::nullopt;
  }
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
  std::vector<std::unique_ptr<net::FrameChannel>> channels(
      static_cast<std::size_t>(config.size - 1));
  const auto limit = std::chrono::steady_clock::now() + kRankConnectTimeout;
  for (int missing = config.size - 1; missing > 0;) {
    if (!is_readable_before(limit, listening.socket))
      throw comm::GroupError(
          fmt::format("{} of {} ranks of an engine did not come", missing, config.size));
    const int socket = net::accept_from(listening.socket);
    if (socket < 0) continue;
    auto channel = std::make_unique<net::FrameChannel>(socket, kGreetingBytes);
    const auto rank = rank_behind(*channel, config.identity, config.size);
    if (!rank || channels[static_cast<std::size_t>(*rank - 1)]) continue;
    channels[static_cast<std::size_t>(*rank - 1)] = std::move(channel);
    --missing;
  }
  std::vector<int> connections;
  for (const auto& channel : channels) connections.push_back(channel->release());
  followers_ = std::make_unique<engine::Followers>(connections);
}

void EngineGroup::meet_leader(const EngineGroupConfig& config, const std::string& address) {
  const std::string port = mesh_->world().all_gather("", kWhat).front();
  try {
    net::FrameChannel channel(net::connect_to(address, std::stoi(port), kRankConnectTimeout));
    if (!channel.send(kGreeting, to_follower_greeting(mesh_->rank(), config.identity),
                      kRankConnectTimeout))
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

}  // namespace slime::loop
