#include "roles/trainer_workers.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "core/clock.h"
#include "core/error.h"
#include "roles/batch_shares.h"
#include "roles/rank_engines.h"

namespace slime::roles {
namespace {

constexpr std::chrono::minutes kAnswerTimeout{2};  // after the last collective of a step

/// Ranks of one host share its cores while they train; before and after, rank 0 has all of them.
class ThreadLimit {
 public:
  explicit ThreadLimit(int threads) : before_(at::get_num_threads()) {
    at::set_num_threads(threads);
  }
  ~ThreadLimit() { at::set_num_threads(before_); }
  ThreadLimit(const ThreadLimit&) = delete;
  ThreadLimit& operator=(const ThreadLimit&) = delete;

 private:
  int before_;
};

}  // namespace

TrainerWorkers::TrainerWorkers(RankStart start, const cluster::RunIdentity& identity,
                               const std::filesystem::path& log_folder, cluster::Hosts& hosts,
                               const Clock& clock)
    : layout_(layout_of(start.config)),
      is_on_gpus_(start.config.device != "cpu"),
      identity_(identity),
      address_(hosts.launcher.address(0)),
      clock_(clock),
      timeout_(start.collective_milliseconds),
      num_train_threads_(start.num_threads),
      ranks_of_engine_(static_cast<int>(start.config.ranks_of_own_engine())),
      engines_have_own_weights_(!layout_.holds_model_whole() || ranks_of_engine_ > 1),
      rendezvous_(address_),
      port_(rendezvous_.port()) {
  const config::RunConfig& config = start.config;
  std::function<void(const std::string&)> last_resort;
  if (!config.use_fault_tolerance) last_resort = end_run;
  std::vector<cluster::WorkerPlace> places;
  for (int rank = 1; rank < layout_.world_size(); ++rank)
    places.push_back(hosts.placement.of_rank(rank));
  workers_ = std::make_unique<cluster::Workers>(
      cluster::WorkersConfig{.first_rank = 1,
                             .count = layout_.world_size() - 1,
                             .identity = identity,
                             .has_data = config.has_engine_on_each_rank(),
                             .places = std::move(places),
                             .log_folder = log_folder,
                             .silence_limit = milliseconds_of(config.worker_timeout_seconds),
                             .last_resort = std::move(last_resort)},
      hosts.launcher, clock);
  for (start.rank = 1; start.rank <= workers_->count(); ++start.rank) {
    start.address = hosts.launcher.address(hosts.placement.of_rank(start.rank).node);
    workers_->send_task(start.rank, to_frame(start));
  }
}

TrainerWorkers::~TrainerWorkers() = default;

template <typename Fn>
auto TrainerWorkers::together(const Fn& work) {
  try {
    return work();
  } catch (const comm::GroupError& error) {
    workers_->blame(error.what(), num_collectives_);
  }
}

const comm::Mesh& TrainerWorkers::connect() {
  for (int rank = 1; rank <= workers_->count(); ++rank) workers_->answer(rank, kRankLoadTimeout);
  tell_others({.kind = RankTask::kMeet, .address = address_, .port = port_});
  mesh_ = together([&] {
    return connect_ranks(
        is_on_gpus_,
        {.rank = 0,
         .layout = layout_,
         .address = address_,
         .meeting = address_,
         .port = port_,
         .token = identity_.token,
         .epoch = identity_.epoch,
         .connect_timeout = kRankConnectTimeout,
         .timeout = timeout_,
         .on_begin = [this](int64_t number, const char*) { num_collectives_ = number + 1; }},
        &rendezvous_);
  });
  if (ranks_of_engine_ > 1) {
    together([&] {
      group_.emplace(*mesh_, EngineGroupConfig{.size = ranks_of_engine_,
                                               .is_on_gpus = is_on_gpus_,
                                               .address = address_,
                                               .identity = identity_,
                                               .timeout = timeout_});
    });
  }
  return *mesh_;
}

void TrainerWorkers::open(model::Network& network, const train::TrainConfig& config,
                          train::OtherNetworks others) {
  for (int rank = 1; rank <= workers_->count(); ++rank) workers_->answer(rank, kRankLoadTimeout);
  own_.emplace(*mesh_, network, config, std::move(others), clock_);
}

void TrainerWorkers::restore(const train::Checkpoint& checkpoint, uint32_t left_out,
                             const train::Warn& warn) {
  train::restore_trainer(checkpoint, own_->trainer(), left_out, warn);
}

std::vector<int> TrainerWorkers::start_engines(const EngineStart& start, model::Network& own) {
  const std::string frame = to_frame(start);
  for (int rank = 1; rank <= workers_->count(); ++rank) workers_->send_task(rank, frame);
  if (engines_have_own_weights_) together([&] { own_->reshard_to(own); });
  std::vector<int> sockets;
  for (int rank = 1; rank <= workers_->count(); ++rank)
    sockets.push_back(workers_->take_data(rank));
  return sockets;
}

void TrainerWorkers::wait_for_engines() {
  for (int rank = 1; rank <= workers_->count(); ++rank) workers_->answer(rank, kRankLoadTimeout);
}

void TrainerWorkers::tell_others(const TrainerTask& task) {
  const std::string frame = to_frame(task);
  for (int rank = 1; rank <= workers_->count(); ++rank) workers_->send_task(rank, frame);
}

train::TrainReport TrainerWorkers::train(const train::TrainBatch& batch) {
  BatchShares shares(layout_, own_->trainer().divide(batch), batch.samples.size());
  for (int rank = 1; rank <= workers_->count(); ++rank)
    workers_->send_task(rank, shares.frame_of(rank));
  const ThreadLimit limit(num_train_threads_);
  train::TrainReport report = together([&] { return own_->trainer().train(shares.of(0)); });
  shares.take(0, std::move(report.log_probs));
  for (int rank = 1; rank <= workers_->count(); ++rank)
    shares.take(rank, train::log_probs_from_frame(workers_->answer(rank, kAnswerTimeout)));
  report.log_probs = shares.take_log_probs();
  report.samples_of_steps = train::split_into_steps(
      batch.rollout_ids(), own_->trainer().config().batching.global_batch_size);
  return report;
}

void TrainerWorkers::weights_published() {
  tell_others({.kind = RankTask::kPublished});
  own_->trainer().weights_published();
}

void TrainerWorkers::gather_weights(model::Network& whole) {
  const TrainerTask task{.kind = own_->reshards() ? RankTask::kReshard : RankTask::kGather};
  tell_others(task);
  if (own_->reshards()) return together([&] { own_->carry_out(task, {}); });
  together([&] { train::gather_weights(own_->trainer(), &whole); });
}

WeightChecksums TrainerWorkers::weight_checksums() {
  tell_others({.kind = RankTask::kChecksums});
  return together([&] { return train::whole_checksums(own_->trainer()); });
}

std::filesystem::path TrainerWorkers::save(const train::CheckpointConfig& config, int64_t iteration,
                                           const json::object& run) {
  tell_others(
      {.kind = RankTask::kSave, .save = {.config = config, .iteration = iteration, .run = {}}});
  return together([&] { return train::save_checkpoint(config, iteration, own_->trainer(), run); });
}

void TrainerWorkers::release_memory() {
  tell_others({.kind = RankTask::kRelease});
  own_->trainer().release_gradients();
  for (int rank = 1; rank <= workers_->count(); ++rank) workers_->answer(rank, kAnswerTimeout);
}

}  // namespace slime::roles
