#include "loop/trainer_workers.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <thread>
#include <utility>

#include "core/error.h"
#include "loop/rank_engines.h"
#include "loop/run_devices.h"

namespace slime::loop {
namespace {

/// A model may come from a slow disk.
constexpr std::chrono::minutes kLoadTimeout{30};
constexpr std::chrono::minutes kAnswerTimeout{2};  // after the last collective of a step

/// Ranks of one host share its cores while they train; before and after, rank 0 has all of them.
int threads_of_a_rank(const config::RunConfig& config) {
  if (config.num_threads > 0) return static_cast<int>(config.num_threads);
  const auto cores = static_cast<int64_t>(std::max(1U, std::thread::hardware_concurrency()));
  return static_cast<int>(std::max<int64_t>(1, cores / layout_of(config).world_size()));
}

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

[[noreturn]] void end_process(const std::string& message) {
  std::fputs(fmt::format("\nslime train: {}\n", message).c_str(), stderr);
  std::fflush(nullptr);
  ::_exit(1);
}

}  // namespace

TrainerWorkers::TrainerWorkers(const config::RunConfig& config, RankStart start,
                               const std::filesystem::path& log_folder, const Clock& clock)
    : layout_(layout_of(config)),
      is_on_gpus_(config.device != "cpu"),
      clock_(clock),
      timeout_(std::chrono::minutes(config.distributed_timeout_minutes)),
      num_train_threads_(threads_of_a_rank(config)),
      port_(rendezvous_.port()) {
  start.port = port_;
  start.collective_milliseconds = timeout_.count();
  start.num_threads = num_train_threads_;
  const auto silence = std::chrono::duration<double>(config.worker_timeout_seconds);
  std::vector<std::string> devices;  // of the workers
  for (int rank = 1; rank < layout_.world_size() && is_on_gpus_; ++rank)
    devices.push_back(visible_devices_of_rank(config, rank).front());
  std::vector<int> far_ends;
  for (int rank = 1; rank < layout_.world_size() && has_engine_on_each_rank(config); ++rank) {
    std::array<int, 2> ends{};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
      throw ConfigError(
          fmt::format("no socket for the engine of a rank: {}", std::strerror(errno)));
    engine_sockets_.push_back(ends[0]);
    far_ends.push_back(ends[1]);
  }
  workers_ = std::make_unique<cluster::LocalWorkers>(
      cluster::LocalWorkersConfig{
          .first_rank = 1,
          .count = layout_.world_size() - 1,
          .command = {std::filesystem::read_symlink("/proc/self/exe").string(), "worker"},
          .data_sockets = far_ends,
          .visible_devices = std::move(devices),
          .log_folder = log_folder,
          .silence_limit = std::chrono::duration_cast<std::chrono::milliseconds>(silence),
          .last_resort = end_process},
      clock);
  for (const int end : far_ends) ::close(end);
  for (start.rank = 1; start.rank <= workers_->count(); ++start.rank)
    workers_->send_task(start.rank, to_frame(start));
}

TrainerWorkers::~TrainerWorkers() {
  for (const int end : engine_sockets_) ::close(end);  // of a run that generates nothing
}

template <typename Fn>
auto TrainerWorkers::together(const Fn& work) {
  try {
    return work();
  } catch (const comm::GroupError& error) {
    workers_->blame(error.what(), num_collectives_);
  }
}

const comm::Mesh& TrainerWorkers::connect() {
  for (int rank = 1; rank <= workers_->count(); ++rank) workers_->answer(rank, kLoadTimeout);
  mesh_ = together([&] {
    return connect_ranks(
        is_on_gpus_,
        {.rank = 0,
         .layout = layout_,
         .port = port_,
         .connect_timeout = kRankConnectTimeout,
         .timeout = timeout_,
         .on_begin = [this](int64_t number, const char*) { num_collectives_ = number + 1; }},
        &rendezvous_);
  });
  return *mesh_;
}

void TrainerWorkers::open(model::Network& network, const train::TrainConfig& config,
                          train::OtherNetworks others) {
  for (int rank = 1; rank <= workers_->count(); ++rank) workers_->answer(rank, kLoadTimeout);
  own_.emplace(*mesh_, network, config, std::move(others), clock_);
}

void TrainerWorkers::restore(const train::Checkpoint& checkpoint, const train::Warn& warn) {
  train::restore_trainer(checkpoint, own_->trainer(), warn);
}

std::vector<int> TrainerWorkers::start_engines(const EngineStart& start) {
  const std::string frame = to_frame(start);
  for (int rank = 1; rank <= workers_->count(); ++rank) workers_->send_task(rank, frame);
  return std::exchange(engine_sockets_, {});
}

void TrainerWorkers::wait_for_engines() {
  for (int rank = 1; rank <= workers_->count(); ++rank) workers_->answer(rank, kLoadTimeout);
}

void TrainerWorkers::tell_others(const TrainerTask& task) {
  const std::string frame = to_frame(task);
  for (int rank = 1; rank <= workers_->count(); ++rank) workers_->send_task(rank, frame);
}

train::TrainReport TrainerWorkers::train(const train::TrainBatch& batch) {
  std::vector<train::BatchShare> shares = own_->trainer().divide(batch);
  std::vector<train::Indices> places;  // in the batch, of each share's samples
  for (const train::BatchShare& share : shares) places.push_back(share.batch_indices);
  const auto dp_of = [&](int rank) {
    return static_cast<std::size_t>(comm::coordinates_of(layout_, rank).dp);
  };
  std::vector<std::string> frames;
  for (const train::BatchShare& share : shares)
    frames.push_back(to_frame({RankTask::kTrain, share}));
  for (int rank = 1; rank <= workers_->count(); ++rank)
    workers_->send_task(rank, frames[dp_of(rank)]);
  const ThreadLimit limit(num_train_threads_);
  train::TrainReport report = together([&] {
    return *own_->carry_out({RankTask::kTrain, std::move(shares[0])});
  });
  std::vector<std::vector<float>> all(batch.samples.size());
  for (int rank = 0; rank <= workers_->count(); ++rank) {
    std::vector<std::vector<float>> own =
        rank == 0 ? std::move(report.log_probs)
                  : train::log_probs_from_frame(workers_->answer(rank, kAnswerTimeout));
    const comm::Coordinates at = comm::coordinates_of(layout_, rank);
    // Of ranks with the same samples the last stage has them, and its first rank is asked.
    if (at.tp > 0 || at.cp > 0 || at.pp + 1 < layout_.pp) continue;
    const train::Indices& place = places[dp_of(rank)];
    check(own.size() == place.size(), "a rank answers for each of its samples");
    for (std::size_t i = 0; i < own.size(); ++i) all[place[i]] = std::move(own[i]);
  }
  report.log_probs = std::move(all);
  report.samples_of_steps = train::split_into_steps(
      batch.rollout_ids(), own_->trainer().config().batching.global_batch_size);
  return report;
}

void TrainerWorkers::weights_published() {
  tell_others({RankTask::kPublished});
  own_->carry_out({RankTask::kPublished});
}

void TrainerWorkers::gather_weights(model::Network& whole) {
  tell_others({RankTask::kGather});
  together([&] { train::gather_weights(own_->trainer(), &whole); });
}

std::filesystem::path TrainerWorkers::save(const train::CheckpointConfig& config, int64_t iteration,
                                           const json::object& run) {
  tell_others({.kind = RankTask::kSave, .saves_optimizer = config.save_optimizer});
  return together([&] { return train::save_checkpoint(config, iteration, own_->trainer(), run); });
}

void TrainerWorkers::release_memory() {
  tell_others({RankTask::kRelease});
  own_->carry_out({RankTask::kRelease});
  for (int rank = 1; rank <= workers_->count(); ++rank) workers_->answer(rank, kAnswerTimeout);
}

}  // namespace slime::loop
