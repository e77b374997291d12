#include "loop/engine_workers_config.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "loop/run_devices.h"

namespace slime::loop {
namespace {

std::chrono::milliseconds from_seconds(double seconds) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::duration<double>(seconds));
}

/// What frames leave room for requests between them.
constexpr int64_t kMostPieceBytes = int64_t{16} << 20;

}  // namespace

EngineWorkersConfig engine_workers_config(const config::RunConfig& config, EngineStart start,
                                          const std::filesystem::path& log_folder,
                                          engine::RunningRequests running) {
  std::vector<std::string> devices;
  for (int engine = 0; engine < config.num_engine_workers; ++engine)
    for (std::string& device : visible_devices_of_engine(config, engine))
      devices.push_back(std::move(device));
  return {.count = static_cast<int>(config.num_engine_workers),
          .start = std::move(start),
          .visible_devices = std::move(devices),
          .identity = {},
          .log_folder = log_folder,
          .running = running,
          .weight_piece_bytes = std::min(config.update_weight_buffer_size, kMostPieceBytes),
          .silence_limit = from_seconds(config.worker_timeout_seconds),
          .starts_again = config.use_fault_tolerance,
          .max_restarts = config.max_restarts,
          .check_interval = from_seconds(config.rollout_health_check_interval),
          .first_wait = from_seconds(config.rollout_health_check_first_wait),
          .progress_limit = from_seconds(config.rollout_health_check_timeout)};
}

}  // namespace slime::loop
