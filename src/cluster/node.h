#pragma once

/// A host of a run other than the controller's: one process that starts workers when it is told to,
/// and ends with them.
///
/// It goes on looking for the controller until that is there, and comes back to it under the same
/// rank when it is started again. When the controller is gone, or has not been heard for a while
/// (its cable may be cut), the workers are killed: others may be doing their work by then.

#include <chrono>
#include <string>

namespace slime::cluster {

struct NodeConfig {
  std::string address;  // of the controller's host: a name, or IPv4
  int port = 0;
  std::string token;                                 // of the run
  std::string program;                               // cluster/run_identity.h
  int rank = 1;                                      // of this process
  int num_devices = 0;                               // GPUs of this host
  std::chrono::milliseconds connect_limit{600'000};  // until the controller is there
  std::chrono::milliseconds silence_limit{30'000};   // without a word from it
};

/// Until the controller says that the run ends: then with its exit code. Throws ConfigError when there
/// is no controller, or it refuses this host; std::runtime_error when it is lost.
int run_node(const NodeConfig& config);

}  // namespace slime::cluster
