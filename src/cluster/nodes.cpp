#include "cluster/nodes.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "cluster/run_identity.h"
#include "core/error.h"
#include "net/tcp.h"

namespace slime::cluster {
namespace {

using std::chrono::milliseconds;

constexpr int kWatchMilliseconds = 100;
constexpr milliseconds kAnswerTimeout{5'000};
constexpr milliseconds kKillLimit{5'000};
constexpr uint64_t kNewsLimitBytes = uint64_t{16} << 20;
constexpr milliseconds kTellPeriod{10'000};
constexpr milliseconds kAbsence{1'000};

void answer(net::FrameChannel& channel, NodeFrame type, const std::string& text = "") {
  try {
    channel.send(static_cast<uint32_t>(type), text, kAnswerTimeout);
  } catch (const net::FrameError&) {  // it does not read, and goes
  }
}

}  // namespace

class Nodes::RemoteProcess final : public WorkerProcess {
 public:
  RemoteProcess(Nodes& nodes, int64_t worker, std::shared_ptr<Remote> remote)
      : nodes_(nodes), worker_(worker), remote_(std::move(remote)) {}
  ~RemoteProcess() override {
    kill();
    const std::lock_guard lock(nodes_.mutex_);
    nodes_.remotes_.erase(worker_);
  }
  RemoteProcess(const RemoteProcess&) = delete;
  RemoteProcess& operator=(const RemoteProcess&) = delete;

  std::string name() const override {
    const std::lock_guard lock(nodes_.mutex_);
    const Node& node = nodes_.nodes_.at(remote_->rank);
    return fmt::format("{} on {}", remote_->process, node.host);
  }
  std::optional<std::string> ending() override {
    const std::lock_guard lock(nodes_.mutex_);
    return remote_->ending;
  }
  void kill() override {
    if (ending()) return;
    nodes_.send(remote_->rank, NodeFrame::kKill,
                to_frame(WorkerNews{.worker = worker_, .text = {}, .last_lines = {}}));
    std::unique_lock lock(nodes_.mutex_);
    nodes_.changed_.wait_for(lock, kKillLimit, [&] { return remote_->ending.has_value(); });
  }
  std::string last_lines() override {
    // They come with the news of its end, which may be a moment away.
    std::unique_lock lock(nodes_.mutex_);
    nodes_.changed_.wait_for(lock, kAbsence, [&] { return remote_->ending.has_value(); });
    return remote_->last_lines;
  }

 private:
  Nodes& nodes_;
  int64_t worker_;
  std::shared_ptr<Remote> remote_;
};

Nodes::Nodes(NodesConfig config, const Clock& clock) : config_(std::move(config)), clock_(clock) {
  check(!config_.token.empty(), "hosts show a token");
  try {
    listener_.emplace(net::listen_on(config_.address, config_.port), config_.token);
  } catch (const std::runtime_error& error) {
    throw ConfigError(fmt::format(
        "cannot listen for the other hosts: {}. The address has to be one of this host's own",
        error.what()));
  }
  port_ = listener_->port();
  watcher_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
}

Nodes::~Nodes() {
  watcher_.request_stop();
  watcher_.join();
  const std::string code = std::to_string(exit_code_.value_or(1));
  for (auto& [rank, node] : nodes_)
    if (node.channel) answer(*node.channel, NodeFrame::kEnd, code);
}

void Nodes::gather(int count, milliseconds limit,
                   const std::function<void(const std::string&)>& tell) {
  std::unique_lock lock(mutex_);
  tell_ = tell;
  const auto begin = clock_.now();
  const auto num_here = [&] {
    return 1 + static_cast<int>(std::ranges::count_if(
                   nodes_, [](const auto& entry) { return entry.second.channel != nullptr; }));
  };
  auto told = begin;
  while (num_here() < count) {
    changed_.wait_for(lock, milliseconds(200));
    const auto now = clock_.now();
    if (now - begin > limit) {
      throw ConfigError(
          fmt::format("{} of {} hosts are there after {} s (--nodes-timeout-seconds)", num_here(),
                      count, std::chrono::duration_cast<std::chrono::seconds>(limit).count()));
    }
    if (now - told < kTellPeriod) continue;
    told = now;
    tell(fmt::format("waiting at {}:{} for the other hosts: {} of {} are there", config_.address,
                     port_, num_here(), count));
  }
  members_.emplace();
  for (const auto& [rank, node] : nodes_) {
    if (!node.channel) continue;
    if (static_cast<int>(members_->size()) + 1 < count) {
      members_->push_back(rank);
    } else {
      tell(fmt::format("{} is not needed: the run has {} hosts", node.host, count));
      answer(*node.channel, NodeFrame::kEnd, "0");
    }
  }
}

int Nodes::fewest_devices() const {
  const std::lock_guard lock(mutex_);
  int fewest = std::numeric_limits<int>::max();
  for (const auto& [rank, node] : nodes_) fewest = std::min(fewest, node.num_devices);
  return fewest;
}

void Nodes::end(int exit_code) { exit_code_ = exit_code; }

int Nodes::num_nodes() const {
  const std::lock_guard lock(mutex_);
  return 1 + (members_ ? static_cast<int>(members_->size()) : 0);
}

std::string Nodes::address(int node) const {
  if (node == 0) return config_.address;
  const std::lock_guard lock(mutex_);
  return nodes_.at(members_.value().at(node - 1)).address;
}

Nodes::Node* Nodes::find(int node) {
  const auto found = nodes_.find(members_.value().at(node - 1));
  return found == nodes_.end() || !found->second.channel ? nullptr : &found->second;
}

void Nodes::send(int rank, NodeFrame type, const std::string& payload) {
  std::shared_ptr<net::FrameChannel> channel;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = nodes_.find(rank); found != nodes_.end())
      channel = found->second.channel;
  }
  if (channel) answer(*channel, type, payload);
}

StartedWorker Nodes::start(const WorkerOrder& order) {
  if (order.place.node == 0) return here_.start(order);
  std::unique_lock lock(mutex_);
  Node* node = nullptr;
  changed_.wait_for(lock, config_.return_limit,
                    [&] { return (node = find(order.place.node)) != nullptr; });
  if (node == nullptr) {
    const Node& lost = nodes_.at(members_.value().at(order.place.node - 1));
    throw WorkerFailure(fmt::format(
        "{}: its host {} is lost, and no other came in its place within {} s "
        "(--nodes-timeout-seconds)",
        order.name, lost.host,
        std::chrono::duration_cast<std::chrono::seconds>(config_.return_limit).count()));
  }
  const int64_t worker = next_worker_++;
  auto remote = std::make_shared<Remote>();
  remote->rank = node->rank;
  remotes_[worker] = remote;
  const std::string host = node->host;
  lock.unlock();
  auto process = std::make_unique<RemoteProcess>(*this, worker, remote);
  send(remote->rank, NodeFrame::kStart, to_frame(StartFrame{.worker = worker, .order = order}));
  lock.lock();
  const auto is_there = [&] {
    return !remote->process.empty() && remote->control >= 0 &&
           (!order.has_data || remote->data >= 0);
  };
  changed_.wait_for(lock, config_.start_limit, [&] {
    return is_there() || !remote->why_not_started.empty() || remote->ending.has_value();
  });
  if (is_there()) {
    StartedWorker started{.process = std::move(process),
                          .control = std::exchange(remote->control, -1),
                          .data = std::exchange(remote->data, -1)};
    return started;
  }
  for (int* socket : {&remote->control, &remote->data})
    if (*socket >= 0) ::close(std::exchange(*socket, -1));
  const std::string why = remote->why_not_started, ending = remote->ending.value_or("");
  if (!why.empty()) remote->ending = "was not started";
  lock.unlock();
  if (!why.empty()) throw ConfigError(fmt::format("on {}: {}", host, why));
  if (!ending.empty()) throw WorkerFailure(fmt::format("{} {}", order.name, ending));
  throw WorkerFailure(
      fmt::format("{}: {} did not start it within {} s", order.name, host,
                  std::chrono::duration_cast<std::chrono::seconds>(config_.start_limit).count()));
}

void Nodes::watch(const std::stop_token& stop) {
  auto looked = clock_.now(), pinged = looked;
  while (!stop.stop_requested()) {
    std::vector<pollfd> sockets;
    listener_->add_to(sockets);
    {
      const std::lock_guard lock(mutex_);
      for (const auto& [rank, node] : nodes_) {
        if (node.channel)
          sockets.push_back({.fd = node.channel->descriptor(), .events = POLLIN, .revents = 0});
      }
    }
    ::poll(sockets.data(), sockets.size(), kWatchMilliseconds);
    const auto now = clock_.now();
    // Time in which this process itself was stopped or starved is nobody's silence.
    if (now - looked > kAbsence) {
      const std::lock_guard lock(mutex_);
      for (auto& [rank, node] : nodes_) node.heard += now - looked;
    }
    looked = now;
    for (const auto& caller : listener_->look()) greet(*caller);
    read_nodes();
    if (now - pinged < kPingPeriod) continue;
    pinged = now;
    std::vector<std::shared_ptr<net::FrameChannel>> channels;
    {
      const std::lock_guard lock(mutex_);
      for (const auto& [rank, node] : nodes_)
        if (node.channel) channels.push_back(node.channel);
    }
    for (const auto& channel : channels) answer(*channel, NodeFrame::kPing);
  }
}

void Nodes::greet(net::HandshakePeer& caller) {
  const net::Claim& claim = caller.claim();
  try {
    if (claim.role == kNodeRole) return greet_node(caller, node_hello_from(claim.text));
    if (claim.role == kWorkerRole) return greet_worker(caller, worker_hello_from(claim.text));
    caller.refuse("here hosts meet their controller");
  } catch (const ConfigError& error) {
    caller.refuse(error.what());
  }
}

void Nodes::greet_node(net::HandshakePeer& caller, const NodeHello& hello) {
  if (hello.program != config_.program)
    return caller.refuse(fmt::format("its program is another one ({}) than the controller's ({})",
                                     hello.program, config_.program));
  const std::lock_guard lock(mutex_);
  const auto found = nodes_.find(hello.rank);
  if (found != nodes_.end() && found->second.channel)
    return caller.refuse(
        fmt::format("rank {} is there already, from {}", hello.rank, found->second.host),
        /*may_retry=*/true);
  const bool is_member = !members_ || std::ranges::find(*members_, hello.rank) != members_->end();
  if (!is_member) return caller.refuse("the run has its hosts");
  Node node{.rank = hello.rank,
            .host = hello.host,
            .address = net::peer_address(caller.descriptor()),
            .num_devices = hello.num_devices,
            .channel = std::make_shared<net::FrameChannel>(caller.welcome(), kNewsLimitBytes),
            .heard = clock_.now()};
  if (tell_) tell_(fmt::format("{} ({}) is there", node.host, node.address));
  nodes_[hello.rank] = std::move(node);
  changed_.notify_all();
}

void Nodes::greet_worker(net::HandshakePeer& caller, const WorkerHello& hello) {
  const std::lock_guard lock(mutex_);
  const auto found = remotes_.find(hello.worker);
  if (found == remotes_.end() || found->second->ending) return caller.refuse("nobody waits for it");
  int& socket = hello.is_data ? found->second->data : found->second->control;
  if (socket >= 0) return caller.refuse("it is connected already");
  socket = caller.welcome();
  changed_.notify_all();
}

void Nodes::read_nodes() {
  const std::lock_guard lock(mutex_);
  for (auto& [rank, node] : nodes_) {
    if (!node.channel) continue;
    try {
      const bool is_open = node.channel->read_available();
      while (const std::optional<net::Frame> frame = node.channel->next()) hear(node, *frame);
      if (!is_open) lose(node, "closed its connection");
    } catch (const std::runtime_error& error) {  // no frame, or none that a node sends
      lose(node, error.what());
    }
    if (node.channel && clock_.now() - node.heard > config_.silence_limit) {
      lose(node, fmt::format("said nothing for {:.1f} s (--worker-timeout-seconds)",
                             std::chrono::duration<double>(clock_.now() - node.heard).count()));
    }
  }
}

void Nodes::hear(Node& node, const net::Frame& frame) {
  node.heard = clock_.now();
  const auto type = static_cast<NodeFrame>(frame.type);
  if (type == NodeFrame::kPing) return;
  if (type != NodeFrame::kStarted && type != NodeFrame::kNotStarted && type != NodeFrame::kEnded)
    throw ConfigError(fmt::format("sent a frame of type {}", frame.type));
  const WorkerNews news = worker_news_from(frame.payload);
  const auto found = remotes_.find(news.worker);
  if (found == remotes_.end()) return;
  Remote& remote = *found->second;
  if (type == NodeFrame::kStarted) remote.process = news.text;
  if (type == NodeFrame::kNotStarted) remote.why_not_started = news.text;
  if (type == NodeFrame::kEnded) {
    remote.ending = news.text;
    remote.last_lines = news.last_lines;
  }
  changed_.notify_all();
}

void Nodes::lose(Node& node, const std::string& why) {
  node.channel->shut_down();
  node.channel.reset();
  // Ranks of this process may wait for theirs, over a cable that is cut.
  if (node.address != config_.address) net::shut_down_all_to(node.address);
  for (auto& [worker, remote] : remotes_) {
    if (remote->rank == node.rank && !remote->ending)
      remote->ending = fmt::format("is lost with its host {}, which {}", node.host, why);
  }
  changed_.notify_all();
}

}  // namespace slime::cluster
