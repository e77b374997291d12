#pragma once

/// The other data-parallel ranks of a run, as rank 0 sees them: `slime worker` processes of this
/// host (docs/decisions/0061-ranks.md).
///
/// Rank 0 is the loop's own process: it generates, divides each batch, trains its share and hands
/// the new weights to the engine, which reads them where they are. The others load the same model
/// from the same flags and train.
///
/// A rank that dies, says that it cannot go on, or hangs ends the run: every function here throws
/// cluster::WorkerFailure with the rank, its process and its last words.

#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cluster/local_workers.h"
#include "config/run_config.h"
#include "core/clock.h"
#include "loop/rank_tasks.h"
#include "train/gloo_ranks.h"
#include "train/trainer.h"

namespace slime::loop {

class OtherRanks final {
 public:
  /// Starts the processes and tells them what to load; they do so while the caller goes on. `start`
  /// lacks rank, size, port, threads and deadline. What rank k prints is in log_folder/rank_k.log.
  /// `clock` outlives the object.
  OtherRanks(const config::RunConfig& config, RankStart start,
             const std::filesystem::path& log_folder, const Clock& clock);

  /// Waits until all ranks have loaded, and joins them. Then ranks() exist.
  void join();
  train::Ranks& ranks() { return *ranks_; }

  /// One rollout step on all ranks; the log-probs of the report are those of the whole batch.
  train::TrainReport train(train::Trainer& trainer, const train::TrainBatch& batch);
  void weights_published();
  /// Tells the others to send their parts; train::save_checkpoint has to follow. `save` is that
  /// call.
  void save(const std::function<void()>& save);

  /// Set when a rank has failed; check_alive() then throws.
  const std::atomic<bool>& has_failed() const { return workers_->has_failed(); }
  void check_alive() { workers_->check_alive(); }

 private:
  void tell_all(RankTask task);
  /// Calls `work`, in which collectives happen.
  template <typename Fn>
  auto together(const Fn& work);

  std::chrono::milliseconds timeout_;  // of a collective
  int num_train_threads_;              // of this process while all ranks train
  train::Rendezvous rendezvous_;
  int port_;
  int64_t num_collectives_ = 0;
  std::unique_ptr<train::Ranks> ranks_;  // outlives the workers: who leaves first may leave alone
  std::unique_ptr<cluster::LocalWorkers> workers_;
};

}  // namespace slime::loop
