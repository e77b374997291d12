#include "cli/run_hosts.h"

#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "cli/ray.h"
#include "cluster/launch_environment.h"
#include "cluster/local_process.h"
#include "cluster/node.h"
#include "cluster/nodes.h"
#include "cluster/run_identity.h"
#include "comm/agent_store.h"
#include "config/unread_flags.h"
#include "config/validate.h"
#include "core/clock.h"
#include "core/error.h"
#include "kernels/gpu/gpu.h"
#include "loop/restarts.h"
#include "loop/translations.h"
#include "net/tcp.h"
#include "setup/run_devices.h"

namespace slime::cli {
namespace {

using cluster::LaunchPlace;
using std::chrono::milliseconds;

void say(const std::string& line) {
  fmt::print(stderr, "{}\n", line);
  std::fflush(stderr);
}

/// The run's token, which whoever starts the processes gave to each.
std::string shared_token(const LaunchPlace& place) {
  const std::string token = cluster::take_identity_from_environment().token;
  constexpr std::size_t kFewest = 16;
  if (token.size() >= kFewest) return token;
  throw ConfigError(fmt::format(
      "started by {} on several hosts: {} has to be the same secret of at least {} characters on "
      "all of them, so that nobody else's process takes part: export {}=$(openssl rand -hex 32) "
      "before you start them",
      place.launcher, cluster::kTokenVariable, kFewest, cluster::kTokenVariable));
}

/// In torchrun's store; a job that it starts again has another one.
std::string key_of_port(const LaunchPlace& place) {
  return fmt::format("slime/port/{}", place.num_restarts);
}

int port_of_controller(const LaunchPlace& place, milliseconds limit) {
  if (!place.has_agent_store) return place.port;
  const std::string text =
      comm::read_from_agent_store(place.address, place.port, key_of_port(place), limit);
  int port = 0;
  std::from_chars(text.data(), text.data() + text.size(), port);
  return port;
}

int serve_as_node(const config::RunConfig& config, const LaunchPlace& place) {
  const milliseconds limit = milliseconds_of(config.nodes_timeout_seconds);
  return cluster::run_node(
      {.address = place.address,
       .port = port_of_controller(place, limit),
       .token = shared_token(place),
       .program = cluster::own_program(),
       .rank = place.rank,
       .num_devices = config.device == "cpu" ? 0 : kernels::count_gpus(),
       .connect_limit = limit,
       // The controller gives this host up before that, and may have replaced it.
       .silence_limit = milliseconds_of(1.5 * config.worker_timeout_seconds)});
}

int train_here(const config::ParsedFlags& flags) {
  // Nobody comes from elsewhere, and what users' functions start has no part in any run.
  cluster::take_identity_from_environment();
  const SystemClock clock;
  if (flags.config.actor_num_nodes > 1) {
    throw ConfigError(fmt::format(
        "--actor-num-nodes {}: this command was started on one host. Start it on each of them, by "
        "torchrun, srun, mpirun or Kubernetes, or through Ray (docs/cluster.md); or use 1",
        flags.config.actor_num_nodes));
  }
  return loop::run_on_this_host(flags, clock);
}

/// How many hosts take part: what the launcher says, or what the flags ask for.
int nodes_of(const config::RunConfig& config, const LaunchPlace& place) {
  if (place.num_nodes) return *place.num_nodes;
  return setup::nodes_needed(config, config.device == "cpu" ? 0 : kernels::count_gpus());
}

int train_as_controller(const config::ParsedFlags& flags, const LaunchPlace& place) {
  const config::RunConfig& config = flags.config;
  const SystemClock clock;
  const std::string token = shared_token(place);
  std::string address;
  try {
    address = net::resolve_ipv4(place.address);
  } catch (const std::runtime_error& error) {
    throw ConfigError(fmt::format("started by {}: {}", place.launcher, error.what()));
  }
  cluster::Nodes nodes({.address = address,
                        .port = place.has_agent_store ? 0 : place.port,
                        .token = token,
                        .program = cluster::own_program(),
                        .silence_limit = milliseconds_of(config.worker_timeout_seconds),
                        .return_limit = milliseconds_of(config.nodes_timeout_seconds)},
                       clock);
  if (place.has_agent_store) {
    comm::write_to_agent_store(place.address, place.port, key_of_port(place),
                               std::to_string(nodes.port()));
  }
  const int count = nodes_of(config, place);
  nodes.gather(count, milliseconds_of(config.nodes_timeout_seconds), say);
  const bool has_devices = config.device != "cpu";
  const int visible = has_devices ? std::min(kernels::count_gpus(), nodes.fewest_devices()) : 0;
  cluster::Hosts hosts{.launcher = nodes,
                       .placement = setup::place_workers(config, count, visible)};
  const int exit_code = loop::run_to_the_end(flags, hosts, token, clock);
  nodes.end(exit_code);
  return exit_code;
}

}  // namespace

int train_on_hosts(config::ParsedFlags& flags, std::span<const std::string> arguments) {
  const std::string& launcher = flags.config.launcher;
  const bool looks = launcher != "local";
  if (looks && launcher != "environment" && is_ray_wanted(launcher)) {
    config::complete_and_validate(flags);  // before anything is asked of the cluster
    become_ray_launcher(flags.config, arguments);
  }
  std::optional<LaunchPlace> place;
  if (looks) place = cluster::launch_place(cluster::own_environment);
  if (!place && launcher == "environment") {
    throw ConfigError(
        "--launcher environment: no launcher's variables are in the environment, or they say that "
        "this process is alone (docs/cluster.md has the table)");
  }
  if (place && !place->leads_its_node()) {
    say(
        fmt::format("process {} of {} has nothing to do: the first one of its host starts the "
                    "workers",
                    place->rank, place->launcher));
    return 0;
  }
  if (place && !place->is_controller()) return serve_as_node(flags.config, *place);
  config::complete_and_validate(flags);
  if (place) loop::read_flags_of_hosts(flags.config);
  loop::make_translations(flags.config, loop::model_if_here(flags.config).get());
  config::note_unread_flags(flags);
  const int exit_code = place ? train_as_controller(flags, *place) : train_here(flags);
  // The notes of the beginning have long scrolled away.
  if (const std::string line = config::still_unread(flags); !line.empty()) say(line);
  return exit_code;
}

}  // namespace slime::cli
