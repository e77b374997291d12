#include "loop/other_ranks.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <thread>

#include "core/error.h"

namespace slime::loop {
namespace {

/// A model may come from a slow disk.
constexpr std::chrono::minutes kLoadTimeout{30};
constexpr std::chrono::seconds kConnectTimeout{60};
constexpr std::chrono::minutes kAnswerTimeout{2};  // after the last collective of a step

/// Ranks of one host share its cores while they train; before and after, rank 0 has all of them.
int threads_of_a_rank(const config::RunConfig& config) {
  if (config.num_threads > 0) return static_cast<int>(config.num_threads);
  const auto cores = static_cast<int64_t>(std::max(1U, std::thread::hardware_concurrency()));
  return static_cast<int>(std::max<int64_t>(1, cores / config.data_parallel_size()));
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
  fmt::print(stderr, "\nslime train: {}\n", message);
  std::fflush(nullptr);
  ::_exit(1);
}

std::string task_of(RankTask task, const std::string& body = "") {
  return static_cast<char>(task) + body;
}

}  // namespace

OtherRanks::OtherRanks(const config::RunConfig& config, RankStart start,
                       const std::filesystem::path& log_folder, const Clock& clock)
    : timeout_(std::chrono::minutes(config.distributed_timeout_minutes)),
      num_train_threads_(threads_of_a_rank(config)),
      port_(rendezvous_.port()) {
  start.size = static_cast<int>(config.data_parallel_size());
  start.port = port_;
  start.collective_milliseconds = timeout_.count();
  start.num_threads = num_train_threads_;
  const auto silence = std::chrono::duration<double>(config.worker_timeout_seconds);
  workers_ = std::make_unique<cluster::LocalWorkers>(
      cluster::LocalWorkersConfig{
          .first_rank = 1,
          .count = start.size - 1,
          .command = {std::filesystem::read_symlink("/proc/self/exe").string(), "worker"},
          .log_folder = log_folder,
          .silence_limit = std::chrono::duration_cast<std::chrono::milliseconds>(silence),
          .last_resort = end_process},
      clock);
  for (start.rank = 1; start.rank < start.size; ++start.rank) {
    workers_->send_task(start.rank, task_of(RankTask::kStart, json::serialize(to_json(start))));
  }
}

template <typename Fn>
auto OtherRanks::together(const Fn& work) {
  try {
    return work();
  } catch (const train::RanksError& error) {
    workers_->blame(error.what(), num_collectives_);
  }
}

void OtherRanks::join() {
  const int size = workers_->count() + 1;
  for (int rank = 1; rank < size; ++rank) workers_->answer(rank, kLoadTimeout);
  ranks_ = together([&] {
    return train::make_gloo_ranks(
        {.rank = 0,
         .size = size,
         .port = port_,
         .connect_timeout = kConnectTimeout,
         .timeout = timeout_,
         .on_begin = [this](int64_t number, const char*) { num_collectives_ = number + 1; }},
        &rendezvous_);
  });
}

void OtherRanks::tell_all(RankTask task) {
  for (int rank = 1; rank <= workers_->count(); ++rank) workers_->send_task(rank, task_of(task));
}

train::TrainReport OtherRanks::train(train::Trainer& trainer, const train::TrainBatch& batch) {
  const std::vector<train::BatchShare> shares = trainer.divide(batch);
  for (int rank = 1; rank <= workers_->count(); ++rank)
    workers_->send_task(rank, task_of(RankTask::kTrain, to_frame(shares[rank])));
  const ThreadLimit limit(num_train_threads_);
  train::TrainReport report = together([&] { return trainer.train(shares[0]); });
  std::vector<std::vector<float>> all(batch.samples.size());
  for (int rank = 0; rank <= workers_->count(); ++rank) {
    std::vector<std::vector<float>> own =
        rank == 0 ? std::move(report.log_probs)
                  : train::log_probs_from_frame(workers_->answer(rank, kAnswerTimeout));
    check(own.size() == shares[rank].places.size(), "a rank answers for each of its samples");
    for (std::size_t i = 0; i < own.size(); ++i) all[shares[rank].places[i]] = std::move(own[i]);
  }
  report.log_probs = std::move(all);
  return report;
}

void OtherRanks::weights_published() { tell_all(RankTask::kPublished); }

void OtherRanks::save(const std::function<void()>& save) {
  tell_all(RankTask::kSave);
  together(save);
}

}  // namespace slime::loop
