#pragma once

/// Messages between the controller and the nodes of a run (net/frame_channel.h).
///
///   controller -> node     kStart  kKill  kPing  kEnd
///   node   -> controller   kStarted  kNotStarted  kEnded  kPing
///
/// A node makes a worker's connections itself, says whose they are, and gives them to the process: the
/// worker has the same descriptors as on the controller's own host, and knows of no hosts.
/// Payloads are JSON objects. Each connection begins with the handshake of net/handshake.h, in which a host
/// claims a NodeHello and a worker's connection a WorkerHello.

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "cluster/launcher.h"

namespace slime::cluster {

enum class NodeFrame : uint32_t {
  kStart = 105,
  kKill = 106,
  kPing = 107,
  kEnd = 108,
  kStarted = 109,
  kNotStarted = 110,
  kEnded = 111,
};

/// Period of the pings by which each side says that it is there.
inline constexpr std::chrono::milliseconds kPingPeriod{1'000};

/// Roles of the handshake.
inline constexpr const char* kNodeRole = "host";
inline constexpr const char* kWorkerRole = "worker";

/// A host offers itself.
struct NodeHello {
  std::string program;  // cluster/run_identity.h
  std::string host;     // its name, for messages
  int rank = 0;         // of its process among those that the launcher started
  int num_devices = 0;  // GPUs that it shows
};

/// A worker's connection.
struct WorkerHello {
  int64_t worker = 0;    // as the controller numbers them
  bool is_data = false;  // its second one
};

/// A worker is to be started.
struct StartFrame {
  int64_t worker = 0;
  WorkerOrder order;  // but for its node
};

/// Of a worker that was started, could not be, or has ended.
struct WorkerNews {
  int64_t worker = 0;
  std::string text;  // kStarted: "process 712"; kNotStarted: why; kEnded: how
  std::string last_lines;
};

std::string to_frame(const NodeHello& hello);
std::string to_frame(const WorkerHello& hello);
std::string to_frame(const StartFrame& start);
std::string to_frame(const WorkerNews& news);

/// They throw ConfigError for bytes of another form.
NodeHello node_hello_from(std::string_view frame);
WorkerHello worker_hello_from(std::string_view frame);
StartFrame start_from(std::string_view frame);
WorkerNews worker_news_from(std::string_view frame);

}  // namespace slime::cluster
