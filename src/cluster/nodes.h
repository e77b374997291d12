#pragma once

/// The hosts of a run as the controller sees them: it listens for them, and starts workers on them.
///
/// A node is another host's process (cluster/node.h) that has proven that it has the run's token. Node 0 is this
/// host; the others are numbered by the ranks that their launcher gave them. A node that is lost takes
/// its workers with it; one that comes under the same rank later takes its place.

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "cluster/launcher.h"
#include "cluster/local_process.h"
#include "cluster/node_frames.h"
#include "core/clock.h"
#include "net/frame_channel.h"
#include "net/handshake.h"

namespace slime::cluster {

struct NodesConfig {
  std::string address;  // of this host, IPv4: where others reach it, and where it listens
  int port = 0;         // 0: one that the system chooses
  std::string token;    // of the run; not empty
  std::string program;  // cluster/run_identity.h
  std::chrono::milliseconds silence_limit{20'000};  // of a node
  std::chrono::milliseconds start_limit{60'000};    // of a worker, until its connections are there
  std::chrono::milliseconds return_limit{600'000};  // until a lost node is back
};

/// One class because who is there, what runs where and who may connect are one state, under one lock.
class Nodes final : public Launcher {
 public:
  /// Listens. `clock` outlives the object. Throws ConfigError when it cannot listen there.
  Nodes(NodesConfig config, const Clock& clock);
  /// Sends the nodes home, with the exit code that end() was given, or 1.
  ~Nodes() override;
  Nodes(const Nodes&) = delete;
  Nodes& operator=(const Nodes&) = delete;

  int port() const { return port_; }

  /// Until `count` nodes are there, this one among them; `tell` hears who has come, and now and then
  /// who is missing. More of them are sent home. Throws ConfigError when they do not come in time.
  void gather(int count, std::chrono::milliseconds limit,
              const std::function<void(const std::string&)>& tell);
  /// The fewest GPUs that a node shows, but for this one.
  int fewest_devices() const;
  /// The run has ended so.
  void end(int exit_code);

  StartedWorker start(const WorkerOrder& order) override;
  int num_nodes() const override;
  std::string address(int node) const override;

 private:
  struct Node {
    int rank = 0;
    std::string host, address;
    int num_devices = 0;
    std::shared_ptr<net::FrameChannel> channel;  // null: it is lost
    Clock::TimePoint heard;
  };
  /// A worker of another host. Guarded by mutex_.
  struct Remote {
    int rank = 0;  // of its node
    std::string process;
    std::optional<std::string> ending;
    std::string last_lines, why_not_started;
    int control = -1, data = -1;
  };
  class RemoteProcess;

  void watch(const std::stop_token& stop);
  void read_nodes();
  void greet(net::HandshakePeer& caller);
  void greet_node(net::HandshakePeer& caller, const NodeHello& hello);
  void greet_worker(net::HandshakePeer& caller, const WorkerHello& hello);
  void hear(Node& node, const net::Frame& frame);
  void lose(Node& node, const std::string& why);
  /// Of a node that is there, by the number that the run gives it; null: it is lost.
  Node* find(int node);
  /// To a node, or nobody where it is lost; without mutex_.
  void send(int rank, NodeFrame type, const std::string& payload);

  NodesConfig config_;
  const Clock& clock_;
  LocalLauncher here_;
  std::optional<net::HandshakeListener> listener_;  // the watching thread's
  int port_ = 0;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int, Node> nodes_;                // by rank
  std::optional<std::vector<int>> members_;  // ranks of nodes 1, 2, ..., once they are gathered
  std::map<int64_t, std::shared_ptr<Remote>> remotes_;
  int64_t next_worker_ = 1;
  std::optional<int> exit_code_;
  std::function<void(const std::string&)> tell_;
  std::jthread watcher_;
};

}  // namespace slime::cluster
