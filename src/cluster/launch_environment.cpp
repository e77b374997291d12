#include "cluster/launch_environment.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <limits>

#include "core/error.h"

namespace slime::cluster {
namespace {

constexpr int kDefaultPort = 29500;  // as torchrun's
constexpr int kMostPort = 65535;

/// The variables of one launcher.
class Variables {
 public:
  Variables(const Environment& environment, std::string launcher)
      : environment_(environment), launcher_(std::move(launcher)) {}

  std::optional<int> number(const char* name, int most = std::numeric_limits<int>::max()) const {
    const std::optional<std::string> text = environment_(name);
    if (!text) return std::nullopt;
    int value = 0;
    const char* end = text->data() + text->size();
    const auto [rest, error] = std::from_chars(text->data(), end, value);
    if (error != std::errc{} || rest != end || value < 0 || value > most)
      fail(fmt::format("{}={}: should be a whole number from 0 to {}", name, *text, most));
    return value;
  }

  int required(const char* name) const {
    const std::optional<int> value = number(name);
    if (!value) fail(fmt::format("{} is not set", name));
    return *value;
  }

  std::string text(const char* name, const char* advice) const {
    const std::optional<std::string> value = environment_(name);
    if (!value) fail(fmt::format("{} is not set; {}", name, advice));
    return *value;
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw ConfigError(fmt::format("started by {}: {}", launcher_, what));
  }

  /// Where process 0 listens.
  int port(const char* name = "MASTER_PORT", int without = kDefaultPort) const {
    return number(name, kMostPort).value_or(without);
  }

  /// Of launchers that start as many processes on each host.
  int num_nodes(const char* world_name, const char* on_node_name) const {
    const int world = required(world_name), on_node = number(on_node_name).value_or(1);
    if (on_node >= 1 && world % on_node == 0) return world / on_node;
    fail(fmt::format("{}={} is no multiple of {}={}; every host has to start as many", world_name,
                     world, on_node_name, on_node));
  }

  LaunchPlace place() const { return {.launcher = launcher_, .address = {}}; }

 private:
  const Environment& environment_;
  std::string launcher_;
};

constexpr const char* kSetAddress = "set it to the name or address of the first process's host";

LaunchPlace of_slime(const Environment& environment) {
  const Variables variables(environment, "SLIME_NODE_RANK");
  LaunchPlace place = variables.place();
  place.rank = variables.required("SLIME_NODE_RANK");
  place.num_nodes = variables.number("SLIME_NUM_NODES");
  place.address = variables.text("SLIME_MASTER_ADDR", kSetAddress);
  place.port = variables.port("SLIME_MASTER_PORT");
  return place;
}

/// torchrun, and Kubeflow's PyTorchJob, whose RANK is the pod's.
LaunchPlace of_torchrun(const Environment& environment) {
  const Variables variables(environment, "torchrun");
  LaunchPlace place = variables.place();
  place.rank = variables.required("RANK");
  place.local_rank = variables.number("LOCAL_RANK").value_or(0);
  place.num_nodes = variables.num_nodes("WORLD_SIZE", "LOCAL_WORLD_SIZE");
  place.address = variables.text("MASTER_ADDR", kSetAddress);
  place.port = variables.port();
  place.has_agent_store = environment("TORCHELASTIC_USE_AGENT_STORE") == "True";
  place.num_restarts = variables.number("TORCHELASTIC_RESTART_COUNT").value_or(0);
  return place;
}

LaunchPlace of_slurm(const Environment& environment) {
  const Variables variables(environment, "Slurm");
  LaunchPlace place = variables.place();
  place.rank = variables.required("SLURM_PROCID");
  place.local_rank = variables.required("SLURM_LOCALID");
  place.num_nodes = variables.number("SLURM_STEP_NUM_NODES");
  if (!place.num_nodes) place.num_nodes = variables.number("SLURM_NNODES").value_or(1);
  const auto of_step = environment("SLURM_STEP_NODELIST");
  place.address = first_slurm_host(
      of_step ? *of_step : variables.text("SLURM_JOB_NODELIST", "start the command with srun"));
  // Two jobs of one host seldom meet there.
  constexpr int kFirst = 20000, kPorts = 10000;
  place.port = variables.port("MASTER_PORT", kFirst + variables.required("SLURM_JOB_ID") % kPorts);
  place.num_restarts = variables.number("SLURM_RESTART_COUNT").value_or(0);
  return place;
}

LaunchPlace of_mpi(const Environment& environment, const char* rank, const char* size,
                   const char* local_rank, const char* local_size) {
  const Variables variables(environment, "mpirun");
  LaunchPlace place = variables.place();
  place.rank = variables.required(rank);
  place.local_rank = variables.number(local_rank).value_or(0);
  place.num_nodes = variables.num_nodes(size, local_size);
  if (*place.num_nodes > 1)
    place.address =
        variables.text("MASTER_ADDR", "mpirun -x MASTER_ADDR=HOST says where the first is");
  place.port = variables.port();
  return place;
}

LaunchPlace of_leader_worker_set(const Environment& environment) {
  const Variables variables(environment, "LeaderWorkerSet");
  LaunchPlace place = variables.place();
  place.rank = variables.required("LWS_WORKER_INDEX");
  place.num_nodes = variables.required("LWS_GROUP_SIZE");
  place.address = variables.text("LWS_LEADER_ADDRESS", "it is set in every pod of a group");
  place.port = variables.port();
  return place;
}

LaunchPlace of_indexed_job(const Environment& environment) {
  const Variables variables(environment, "Kubernetes");
  LaunchPlace place = variables.place();
  place.rank = variables.required("JOB_COMPLETION_INDEX");
  place.num_nodes = variables.number("SLIME_NUM_NODES");
  place.address =
      variables.text("MASTER_ADDR", "set it to the first pod's name in the headless service");
  place.port = variables.port();
  place.num_restarts = variables.number("JOBSET_RESTART_ATTEMPT").value_or(0);
  return place;
}

std::optional<LaunchPlace> recognised(const Environment& environment) {
  if (environment("SLIME_NODE_RANK")) return of_slime(environment);
  if (environment("RANK") && environment("WORLD_SIZE")) return of_torchrun(environment);
  if (environment("SLURM_PROCID") && environment("SLURM_JOB_ID")) return of_slurm(environment);
  if (environment("OMPI_COMM_WORLD_RANK")) {
    return of_mpi(environment, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                  "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE");
  }
  if (environment("PMI_RANK"))
    return of_mpi(environment, "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS");
  if (environment("LWS_WORKER_INDEX")) return of_leader_worker_set(environment);
  // An index without an address: pods that have nothing to do with one another.
  if (environment("JOB_COMPLETION_INDEX") && environment("MASTER_ADDR"))
    return of_indexed_job(environment);
  return std::nullopt;
}

}  // namespace

std::optional<std::string> own_environment(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

std::optional<LaunchPlace> launch_place(const Environment& environment) {
  std::optional<LaunchPlace> place = recognised(environment);
  if (!place) return std::nullopt;
  if (place->num_nodes && *place->num_nodes < 1)
    throw ConfigError(fmt::format("started by {}: on no node", place->launcher));
  const bool is_alone = place->num_nodes == 1 && place->is_controller();
  if (is_alone) return std::nullopt;
  return place;
}

std::string first_slurm_host(std::string_view list) {
  std::string host;
  for (std::size_t at = 0; at < list.size() && list[at] != ','; ++at) {
    if (list[at] != '[') {
      host += list[at];
      continue;
    }
    const std::size_t close = list.find(']', at);
    if (close == std::string_view::npos)
      throw ConfigError(fmt::format("started by Slurm: {} is no list of hosts", list));
    const std::string_view inside = list.substr(at + 1, close - at - 1);
    host += inside.substr(0, inside.find_first_of(",-"));
    at = close;
  }
  return host;
}

}  // namespace slime::cluster
