#pragma once

/// Environment variables that a launcher sets for each process: its rank in the run, and the
/// address of the first process (docs/cluster.md has the table).
///
/// Process 0 is the controller. The first process of every other host serves it (cluster/node.h).
/// Launchers that start a process for each GPU have started the others for nothing: a host's workers are
/// the children of its first process.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace slime::cluster {

struct LaunchPlace {
  std::string launcher;          // "torchrun", for messages
  int rank = 0;                  // of this process among all; nodes are in the order of their first
  int local_rank = 0;            // among those of its host
  std::optional<int> num_nodes;  // where the launcher says it
  std::string address;           // of process 0's host: a name, or IPv4
  int port = 0;                  // there
  /// The port is that of torchrun's own store, in which process 0 writes its own.
  bool has_agent_store = false;
  int64_t num_restarts = 0;  // of the whole job by its launcher

  bool is_controller() const { return rank == 0; }
  bool leads_its_node() const { return local_rank == 0; }
};

/// The value of a variable, where it is set and not empty.
using Environment = std::function<std::optional<std::string>(const char* name)>;
std::optional<std::string> own_environment(const char* name);

/// Nothing: no launcher has started this process, or it has started nothing but this one. The first
/// launcher that is recognised is believed: our own variables (SLIME_NODE_RANK), torchrun and
/// Kubeflow, Slurm's srun, MPI, LeaderWorkerSet, Kubernetes' indexed jobs. Throws ConfigError for
/// variables that contradict themselves or lack something.
std::optional<LaunchPlace> launch_place(const Environment& environment);

/// The first host of a list as Slurm writes it: "rack[1-2]n[03,07],gpu5" is rack1n03. Throws ConfigError
/// for brackets that do not close.
std::string first_slurm_host(std::string_view list);

}  // namespace slime::cluster
