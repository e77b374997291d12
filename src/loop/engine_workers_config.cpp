#include "loop/engine_workers_config.h"

#include <algorithm>
#include <utility>

#include "core/clock.h"

namespace slime::loop {
namespace {

/// What frames leave room for requests between them.
constexpr int64_t kMostPieceBytes = int64_t{16} << 20;

}  // namespace

EngineWorkersConfig engine_workers_config(const config::RunConfig& config, EngineStart start,
                                          const std::filesystem::path& log_folder,
                                          engine::RunningRequests running,
                                          const cluster::Placement& placement) {
  std::vector<cluster::WorkerPlace> places;
  for (int engine = 0; engine < config.num_engine_workers; ++engine)
    places.push_back(placement.of_engine(engine));
  return {.count = static_cast<int>(config.num_engine_workers),
          .start = std::move(start),
          .places = std::move(places),
          .identity = {},
          .log_folder = log_folder,
          .running = running,
          .weight_piece_bytes = std::min(config.update_weight_buffer_size, kMostPieceBytes),
          .publishes = {.sends_changes = config.update_weight_mode == "delta",
                        .encoding = config.update_weight_delta_encoding == "xor"
                                        ? model::DeltaEncoding::kXor
                                        : model::DeltaEncoding::kOverwrite,
                        .folder = config.update_weight_transport == "disk"
                                      ? std::filesystem::absolute(config.update_weight_disk_dir)
                                      : std::filesystem::path(),
                        .keeps_files = config.update_weight_disk_keep_files},
          .silence_limit = milliseconds_of(config.worker_timeout_seconds),
          .starts_again = config.use_fault_tolerance,
          .max_restarts = config.max_restarts,
          .check_interval = milliseconds_of(config.rollout_health_check_interval),
          .first_wait = milliseconds_of(config.rollout_health_check_first_wait),
          .progress_limit = milliseconds_of(config.rollout_health_check_timeout)};
}

}  // namespace slime::loop
