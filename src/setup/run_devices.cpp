#include "setup/run_devices.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>

#include "cluster/visible_devices.h"
#include "core/divide_up.h"
#include "core/error.h"
#include "kernels/gpu/gpu.h"

namespace slime::setup {
namespace {

int num_ranks(const config::RunConfig& config) { return static_cast<int>(config.world_size()); }

}  // namespace

std::string choose_device(config::RunConfig& config) {
  const std::string asked = config.device.peek();
  const auto on_gpus = [](std::string_view why) {
    const int count = kernels::count_gpus();
    return fmt::format("on {}, {}",
                       count == 1 ? "the GPU" : fmt::format("GPUs, {} are visible", count), why);
  };
  if (asked == "cpu") return "on the CPU, as --device cpu says";
  kernels::choose_platform(asked);
  if (asked == "cuda") return on_gpus("as --device cuda says");
  if (asked == "hip") return on_gpus("as --device hip says");
  const std::string missing = kernels::missing_for_gpus();
  config.device = missing.empty() ? "cuda" : "cpu";
  return missing.empty() ? on_gpus("--device auto found it")
                         : fmt::format("on the CPU: {} (--device auto)", missing);
}

int devices_needed(const config::RunConfig& config) {
  if (config.device == "cpu") return 0;
  return place_workers(config, 1, 0).places_needed();
}

int64_t num_rollout_devices(const config::RunConfig& config) {
  if (config.num_engine_workers > 0)
    return config.num_engine_workers * config.rollout_num_gpus_per_engine;
  return config.has_engine_on_each_rank() ? config.world_size() : 1;
}

void check_devices(const config::RunConfig& config) {
  if (config.device == "cpu") return;
  kernels::choose_platform(config.device);
  const int num_visible = kernels::count_gpus();
  if (num_visible == 0) kernels::open_gpu();  // throws, with what is missing
  check_devices(config, num_visible);
}

void check_devices(const config::RunConfig& config, int num_visible) {
  const int needed = devices_needed(config);
  if (needed <= num_visible) return;
  std::vector<std::string> users;
  users.push_back(fmt::format("{} for training (--actor-num-gpus-per-node)", num_ranks(config)));
  if (config.num_engine_workers > 0)
    users.push_back(fmt::format("{} for engines (--rollout-num-gpus)", config.num_engine_workers));
  const char* variable =
      config.device == "hip" ? cluster::kVisibleHipDevices : cluster::kVisibleDevices;
  const char* visible = std::getenv(variable);
  throw ConfigError(fmt::format(
      "--device {}: the run needs {} GPU{}, {}; this machine shows {}{}. Use fewer, or{} a machine "
      "with more",
      config.device, needed, needed == 1 ? "" : "s", fmt::join(users, " and "), num_visible,
      visible == nullptr ? "" : fmt::format(" ({}={})", variable, visible),
      config.num_engine_workers > 0
          ? " leave --rollout-num-gpus away for an engine on the trainer's GPU, or use"
          : ""));
}

std::vector<int> places_of_nodes(const config::RunConfig& config) {
  const int per_node =
      static_cast<int>(config.num_gpus_per_node.value_or(config.actor_num_gpus_per_node));
  std::vector<int> places;
  for (int rest = place_workers(config, 1, 0).places_needed(); rest > 0; rest -= per_node)
    places.push_back(std::min(rest, per_node));
  return places;
}

int nodes_needed(const config::RunConfig& config, int num_visible) {
  if (num_visible == 0 || config.num_gpus_per_node)
    return static_cast<int>(places_of_nodes(config).size());
  return static_cast<int>(divide_up(place_workers(config, 1, 0).places_needed(), num_visible));
}

cluster::Placement place_workers(const config::RunConfig& config, int num_nodes, int num_visible) {
  cluster::Placement placement{
      .num_nodes = num_nodes,
      .num_ranks = num_ranks(config),
      .num_engines =
          config.has_external_engines() ? 0 : static_cast<int>(config.num_engine_workers),
      .places_per_engine = static_cast<int>(config.rollout_num_gpus_per_engine),
      .has_devices = config.device != "cpu"};
  if (num_nodes > 1) {
    placement.places_per_node = static_cast<int>(config.num_gpus_per_node.value_or(
        placement.has_devices ? num_visible : config.actor_num_gpus_per_node));
  }
  if (const std::string problem = placement.problem(); !problem.empty()) throw ConfigError(problem);
  return placement;
}

}  // namespace slime::setup
