#include "loop/run_devices.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdlib>

#include "cluster/visible_devices.h"
#include "core/error.h"
#include "kernels/gpu/gpu.h"

namespace slime::loop {
namespace {

int num_ranks(const config::RunConfig& config) { return static_cast<int>(config.world_size()); }

std::vector<std::string> one_device(const config::RunConfig& config, int index) {
  if (config.device == "cpu") return {};
  return {cluster::visible_device(index)};
}

}  // namespace

int devices_needed(const config::RunConfig& config) {
  if (config.device == "cpu") return 0;
  return cluster::device_of_engine(num_ranks(config), static_cast<int>(config.num_engine_workers));
}

void check_devices(const config::RunConfig& config) {
  if (config.device == "cpu") return;
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
  const char* visible = std::getenv(cluster::kVisibleDevices);
  throw ConfigError(fmt::format(
      "--device {}: the run needs {} GPU{}, {}; this machine shows {}{}. Use fewer, or{} a machine "
      "with more",
      config.device, needed, needed == 1 ? "" : "s", fmt::join(users, " and "), num_visible,
      visible == nullptr ? "" : fmt::format(" (CUDA_VISIBLE_DEVICES={})", visible),
      config.num_engine_workers > 0
          ? " leave --rollout-num-gpus away for an engine on the trainer's GPU, or use"
          : ""));
}

std::vector<std::string> visible_devices_of_rank(const config::RunConfig& config, int rank) {
  return one_device(config, cluster::device_of_rank(rank));
}

std::vector<std::string> visible_devices_of_engine(const config::RunConfig& config, int engine) {
  return one_device(config, cluster::device_of_engine(num_ranks(config), engine));
}

}  // namespace slime::loop
