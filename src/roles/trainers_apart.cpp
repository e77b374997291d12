#include "roles/trainers_apart.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "core/clock.h"
#include "core/error.h"
#include "model/stored_parts.h"
#include "roles/batch_shares.h"
#include "train/rank_report.h"

namespace slime::roles {
namespace {

/// Of what takes as long as it takes: heartbeats and the deadlines of collectives find who hangs.
constexpr std::chrono::hours kWorkTimeout{24 * 365};

cluster::WorkersConfig workers_of(const config::RunConfig& config,
                                  const cluster::RunIdentity& identity,
                                  const std::filesystem::path& log_folder,
                                  const cluster::Placement& placement) {
  cluster::WorkersConfig workers{.first_rank = 0,
                                 .count = layout_of(config).world_size(),
                                 .identity = identity,
                                 .has_data = config.has_engines_over_ranks(),
                                 .log_folder = log_folder,
                                 .silence_limit = milliseconds_of(config.worker_timeout_seconds)};
  for (int rank = 0; rank < workers.count; ++rank)
    workers.places.push_back(placement.of_rank(rank));
  // Where they are started again that waits until the loop has something for them.
  if (!config.use_fault_tolerance) workers.last_resort = end_run;
  return workers;
}

class RankGauge final : public report::MemoryGauge {
 public:
  explicit RankGauge(cluster::Workers& workers) : workers_(workers) {}
  void begin_phase() override { tell(RankTask::kBeginPhase); }
  report::MemoryMeasured measure() override {
    tell(RankTask::kMemory);
    return memory_measured_from(workers_.answer(0, kWorkTimeout));
  }
  void release_unused() override {}  // TrainersApart::release_memory()

 private:
  void tell(RankTask kind) { workers_.send_task(0, to_frame(TrainerTask{.kind = kind})); }

  cluster::Workers& workers_;
};

/// Of rank 0's first answer.
int port_from(const std::string& answer) {
  int port = 0;
  const char* end = answer.data() + answer.size();
  const auto [rest, error] = std::from_chars(answer.data(), end, port);
  check(error == std::errc{} && rest == end, "rank 0 says where it listens");
  return port;
}

}  // namespace

TrainersApart::TrainersApart(RankStart start, const cluster::RunIdentity& identity,
                             const std::filesystem::path& log_folder, cluster::Hosts& hosts,
                             const Clock& clock)
    : layout_(layout_of(start.config)),
      address_(hosts.launcher.address(hosts.placement.of_rank(0).node)),
      workers_(workers_of(start.config, identity, log_folder, hosts.placement), hosts.launcher,
               clock) {
  for (start.rank = 0; start.rank < workers_.count(); ++start.rank) {
    start.address = hosts.launcher.address(hosts.placement.of_rank(start.rank).node);
    workers_.send_task(start.rank, to_frame(start));
  }
}

estimate::MemoryPlan TrainersApart::open(std::unique_ptr<model::Network> shape,
                                         const train::TrainConfig& config,
                                         const train::Warn& warn) {
  shape_ = std::move(shape);
  config_ = config;
  TrainerTask meet{.kind = RankTask::kMeet, .address = address_};
  for (int rank = 0; rank < workers_.count(); ++rank) {
    const std::string answer = workers_.answer(rank, kRankLoadTimeout);
    if (rank == 0) meet.port = port_from(answer);
  }
  tell_all(meet);
  const RankReady ready = rank_ready_from(workers_.answer(0, kRankLoadTimeout));
  for (int rank = 1; rank < workers_.count(); ++rank)
    workers_.answer(rank, kRankLoadTimeout);  // they have found the same
  for (const std::string& line : ready.notes) warn(line);
  return estimate::MemoryPlan::from_json(ready.memory);
}

std::unique_ptr<report::MemoryGauge> TrainersApart::memory_gauge() {
  return std::make_unique<RankGauge>(workers_);
}

std::vector<int> TrainersApart::start_engines(const EngineStart& start) {
  const std::string frame = to_frame(start);
  std::vector<int> sockets;
  for (int rank = 0; rank < workers_.count(); ++rank) workers_.send_task(rank, frame);
  for (int rank = 0; rank < workers_.count(); ++rank) sockets.push_back(workers_.take_data(rank));
  return sockets;
}

EngineReady TrainersApart::wait_for_engines() {
  const EngineReady ready = engine_ready_from(workers_.answer(0, kRankLoadTimeout));
  for (int rank = 1; rank < workers_.count(); ++rank) workers_.answer(rank, kRankLoadTimeout);
  return ready;
}

void TrainersApart::bring_weights() {
  tell_all({.kind = RankTask::kBring});
  wait_for_all();
}

void TrainersApart::tell_all(const TrainerTask& task) {
  const std::string frame = to_frame(task);
  for (int rank = 0; rank < workers_.count(); ++rank) workers_.send_task(rank, frame);
}

void TrainersApart::wait_for_all() {
  for (int rank = 0; rank < workers_.count(); ++rank) workers_.answer(rank, kWorkTimeout);
}

train::TrainReport TrainersApart::train(const train::TrainBatch& batch) {
  BatchShares shares(layout_, train::divide(batch, config_, *shape_), batch.samples.size());
  for (int rank = 0; rank < workers_.count(); ++rank)
    workers_.send_task(rank, shares.frame_of(rank));
  train::TrainReport report;
  for (int rank = 0; rank < workers_.count(); ++rank) {
    train::TrainReport own = train::report_from_frame(workers_.answer(rank, kWorkTimeout));
    shares.take(rank, own);
    if (rank == 0) report = std::move(own);
  }
  shares.move_to(report);
  report.samples_of_steps =
      train::split_into_steps(batch.rollout_ids(), config_.batching.global_batch_size);
  return report;
}

void TrainersApart::gather_weights(model::Network& whole) {
  tell_all({.kind = RankTask::kGather, .matrices = whole.trained().matrices()});
  std::map<std::string, Tensor, std::less<>> targets;
  for (model::StoredPart& part : model::stored_parts(whole.trained()))
    targets.emplace(std::move(part.name), std::move(part.value));
  for (const model::NamedConstant& constant : whole.weights().constants())
    targets[constant.name] = constant.value;
  for (;;) {
    const std::string frame = workers_.answer(0, kWorkTimeout);
    if (frame.empty()) return;
    const NamedPiece piece = named_piece_from(frame);
    const auto found = targets.find(piece.name);
    check(found != targets.end(), "a piece is of a tensor of the model");
    const Tensor& target = found->second;
    check(target.is_cpu() && target.is_contiguous(), "the controller's weights are whole tensors");
    check(piece.offset <= target.nbytes() && piece.bytes.size() <= target.nbytes() - piece.offset,
          "a piece is of its tensor");
    std::memcpy(static_cast<char*>(target.mutable_data_ptr()) + piece.offset, piece.bytes.data(),
                piece.bytes.size());
  }
}

WeightChecksums TrainersApart::weight_checksums(kernels::MatrixFormat matrices) {
  tell_all({.kind = RankTask::kChecksums, .matrices = matrices});
  return checksums_from(workers_.answer(0, kWorkTimeout));
}

void TrainersApart::release_memory() {
  tell_all({.kind = RankTask::kRelease});
  wait_for_all();
}

std::filesystem::path TrainersApart::save(const train::CheckpointConfig& config, int64_t iteration,
                                          const json::object& run) {
  tell_all(
      {.kind = RankTask::kSave, .save = {.config = config, .iteration = iteration, .run = run}});
  return workers_.answer(0, kWorkTimeout);
}

}  // namespace slime::roles
