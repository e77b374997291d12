#include "cluster/node.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>

#include "cluster/local_process.h"
#include "cluster/node_frames.h"
#include "cluster/run_identity.h"
#include "cluster/visible_devices.h"
#include "core/error.h"
#include "net/frame_channel.h"
#include "net/handshake.h"
#include "net/tcp.h"

namespace slime::cluster {
namespace {

using Steady = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kConnectTimeout{5'000};  // of one try
constexpr milliseconds kHandshakeTimeout{10'000};
constexpr milliseconds kBetweenTries{500};
constexpr milliseconds kReportTimeout{30'000};
constexpr int kLookMilliseconds = 50;  // how late an ended worker is noticed

void say(const std::string& line) {
  fmt::print(stderr, "slime node: {}\n", line);
  std::fflush(stderr);
}

/// The controller ends a run that is interrupted, and then its nodes; a launcher that interrupts all
/// processes at once must not take the workers from it meanwhile. The second signal ends the process.
void leave_interrupts_to_the_controller() {
  struct sigaction action {};
  action.sa_handler = [](int) {};
  action.sa_flags = SA_RESTART | static_cast<int>(SA_RESETHAND);
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

/// What was refused for now: another try may do.
struct NotYet : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Who connects, and says so to a controller that has the same token.
std::unique_ptr<net::FrameChannel> introduce(const NodeConfig& config, const std::string& address,
                                             const net::Claim& claim) {
  auto channel =
      std::make_unique<net::FrameChannel>(net::connect_to(address, config.port, kConnectTimeout));
  try {
    net::introduce(channel->descriptor(), config.token, claim, kHandshakeTimeout);
  } catch (const net::RefusedError& error) {
    if (error.may_retry()) throw NotYet(error.what());
    throw ConfigError(fmt::format("the controller refuses this host: {}", error.what()));
  } catch (const net::OtherSecretError&) {
    throw ConfigError(
        fmt::format("the controller has another token than this host ({})", kTokenVariable));
  }
  return channel;
}

class Node final {
 public:
  explicit Node(const NodeConfig& config) : config_(config), address_(), channel_(join()) {}

  int serve() {
    auto heard = Steady::now(), said = Steady::now();
    for (;;) {
      pollfd waiting{.fd = channel_->descriptor(), .events = POLLIN, .revents = 0};
      ::poll(&waiting, 1, kLookMilliseconds);
      const bool is_open = channel_->read_available();
      while (const auto frame = channel_->next()) {
        heard = Steady::now();
        if (frame->type == static_cast<uint32_t>(NodeFrame::kEnd))
          return exit_code_from(frame->payload);
        obey(*frame);
      }
      if (!is_open) throw std::runtime_error("the controller is gone");
      tell_endings();
      const auto now = Steady::now();
      if (now - heard > config_.silence_limit) {
        throw std::runtime_error(fmt::format(
            "nothing was heard of the controller for {} s; the workers of this host are killed",
            std::chrono::duration_cast<std::chrono::seconds>(now - heard).count()));
      }
      if (now - said > kPingPeriod) {
        said = now;
        send(NodeFrame::kPing, "");
      }
    }
  }

 private:
  std::unique_ptr<net::FrameChannel> join() {
    std::array<char, 256> host{};
    ::gethostname(host.data(), host.size() - 1);
    const std::string hello = to_frame(NodeHello{.program = config_.program,
                                                 .host = host.data(),
                                                 .rank = config_.rank,
                                                 .num_devices = config_.num_devices});
    const auto begin = Steady::now();
    std::string told;
    for (;;) {
      std::string why;
      try {
        address_ = net::resolve_ipv4(config_.address);
        return introduce(config_, address_, {.role = kNodeRole, .text = hello});
      } catch (const ConfigError&) {
        throw;
      } catch (const std::runtime_error& error) {
        why = error.what();
      }
      if (Steady::now() - begin > config_.connect_limit) {
        throw ConfigError(fmt::format(
            "no controller at {}:{} within {} s: {}", config_.address, config_.port,
            std::chrono::duration_cast<std::chrono::seconds>(config_.connect_limit).count(), why));
      }
      if (why != told) say(fmt::format("waiting for the controller: {}", why));
      told = why;
      std::this_thread::sleep_for(kBetweenTries);
    }
  }

  void obey(const net::Frame& frame) {
    switch (static_cast<NodeFrame>(frame.type)) {
      case NodeFrame::kPing:
        return;
      case NodeFrame::kStart:
        return start(start_from(frame.payload));
      case NodeFrame::kKill: {
        const auto found = workers_.find(worker_news_from(frame.payload).worker);
        if (found != workers_.end()) found->second->kill();  // and tell_endings() says so
        return;
      }
      default:
        throw BugError(fmt::format("a controller sends no frame of type {}", frame.type));
    }
  }

  void start(const StartFrame& start) {
    const auto connect = [&](bool is_data) {
      const WorkerHello hello{.worker = start.worker, .is_data = is_data};
      return introduce(config_, address_, {.role = kWorkerRole, .text = to_frame(hello)});
    };
    try {
      WorkerOrder order = start.order;
      order.log = writable(order.log);
      order.identity.token = config_.token;
      const auto control = connect(false);
      std::unique_ptr<net::FrameChannel> data;
      if (order.has_data) data = connect(true);
      std::optional<std::string> device;
      if (order.place.device >= 0)
        device = visible_devices(order.place.device, order.place.num_devices);
      auto process = start_process(
          order, {.control = control->descriptor(), .data = data ? data->descriptor() : -1},
          device);
      say(fmt::format("{} is {}, and prints to {}", order.name, process->name(),
                      order.log.string()));
      send(NodeFrame::kStarted,
           to_frame(WorkerNews{.worker = start.worker, .text = process->name(), .last_lines = {}}));
      workers_[start.worker] = std::move(process);
    } catch (const std::exception& error) {
      send(NodeFrame::kNotStarted,
           to_frame(WorkerNews{.worker = start.worker, .text = error.what(), .last_lines = {}}));
    }
  }

  /// The run's folder may not be there on this host.
  static std::filesystem::path writable(const std::filesystem::path& log) {
    std::error_code error;
    std::filesystem::create_directories(log.parent_path(), error);
    if (!error && ::access(log.parent_path().c_str(), W_OK) == 0) return log;
    return std::filesystem::temp_directory_path() /
           fmt::format("slime_{}_{}", ::getpid(), log.filename().string());
  }

  void tell_endings() {
    for (auto at = workers_.begin(); at != workers_.end();) {
      const std::optional<std::string> ending = at->second->ending();
      if (!ending) {
        ++at;
        continue;
      }
      send(NodeFrame::kEnded,
           to_frame(WorkerNews{
               .worker = at->first, .text = *ending, .last_lines = at->second->last_lines()}));
      at = workers_.erase(at);
    }
  }

  void send(NodeFrame type, const std::string& payload) {
    if (!channel_->send(static_cast<uint32_t>(type), payload, kReportTimeout))
      throw std::runtime_error("the controller is gone");
  }

  static int exit_code_from(std::string_view text) {
    int code = 1;
    std::from_chars(text.data(), text.data() + text.size(), code);
    return code;
  }

  const NodeConfig& config_;
  std::string address_;  // of the controller
  std::unique_ptr<net::FrameChannel> channel_;
  std::map<int64_t, std::unique_ptr<WorkerProcess>> workers_;
};

}  // namespace

int run_node(const NodeConfig& config) {
  leave_interrupts_to_the_controller();
  Node node(config);
  say(fmt::format("serves the run of {}:{}", config.address, config.port));
  return node.serve();
}

}  // namespace slime::cluster
