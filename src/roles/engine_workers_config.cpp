#include "roles/engine_workers_config.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "core/clock.h"

namespace slime::roles {
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
  const bool sends_changes = config.update_weight_mode == "delta";
  const bool uses_disk = config.update_weight_transport == "disk";
  EngineWorkersConfig workers{
      .count = static_cast<int>(config.num_engine_workers),
      .start = std::move(start),
      .places = std::move(places),
      .identity = {},
      .log_folder = log_folder,
      .running = running,
      .weight_piece_bytes = std::min(config.update_weight_buffer_size.get(), kMostPieceBytes),
      .publishes = {.sends_changes = sends_changes,
                    .encoding = !sends_changes || config.update_weight_delta_encoding == "xor"
                                    ? model::DeltaEncoding::kXor
                                    : model::DeltaEncoding::kOverwrite,
                    .folder = uses_disk ? std::filesystem::absolute(config.update_weight_disk_dir)
                                        : std::filesystem::path(),
                    .keeps_files = uses_disk && config.update_weight_disk_keep_files},
      .silence_limit = milliseconds_of(config.worker_timeout_seconds),
      .starts_again = config.use_fault_tolerance || config.keeps_engines()};
  if (workers.starts_again) {
    workers.max_restarts = config.max_restarts;
    workers.check_interval = milliseconds_of(config.rollout_health_check_interval);
    workers.first_wait = milliseconds_of(config.rollout_health_check_first_wait);
    workers.progress_limit = milliseconds_of(config.rollout_health_check_timeout);
  }
  return workers;
}

KeptEnginesConfig kept_engines_config(const config::RunConfig& config) {
  return {.id = config.rollout_session_id,
          .count = config.keeps_engines() ? static_cast<int>(config.num_engine_workers) : 0,
          .patience_minutes = config.rollout_session_minutes,
          .end_seconds = config.rollout_cleanup_timeout};
}

ExternalEnginesConfig external_engines_config(const config::RunConfig& config) {
  ExternalEnginesConfig external;
  external.publishes.folder = std::filesystem::absolute(config.update_weight_disk_dir);
  external.publishes.keeps_files = config.update_weight_disk_keep_files;
  const char* key = std::getenv("SLIME_API_KEY");
  for (const std::string& address : config.rollout_external_engine_addrs.get()) {
    external.servers.push_back(external_server(address));
    external.servers.back().api_key = key == nullptr ? "" : key;
  }
  return external;
}

}  // namespace slime::roles
