#pragma once

/// A rollout step's samples as ranks get them, and what ranks answer of each of them: log-probs and
/// advantage.

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "comm/parallel_layout.h"
#include "train/share.h"
#include "train/trainer.h"

namespace slime::roles {

class BatchShares {
 public:
  /// `shares`: one for each index of data parallelism (train::divide), of `num_samples` in all.
  BatchShares(const comm::ParallelLayout& layout, std::vector<train::BatchShare> shares,
              std::size_t num_samples);

  const train::BatchShare& of(int rank) const { return shares_[dp_of(rank)]; }
  /// What a worker that is this rank is told (RankTask::kTrain).
  const std::string& frame_of(int rank) const { return frames_[dp_of(rank)]; }

  /// Moves log-probs and advantages out of what a rank answered: of its samples, in their order. Of ranks
  /// with the same samples the first one of the last stage counts.
  void take(int rank, train::TrainReport& report);
  /// Those of the whole batch, once every rank's were taken.
  void move_to(train::TrainReport& report);

 private:
  std::size_t dp_of(int rank) const;

  comm::ParallelLayout layout_;
  std::vector<train::BatchShare> shares_;
  std::vector<std::string> frames_;
  std::vector<std::vector<float>> log_probs_;
  std::vector<float> advantages_;
};

}  // namespace slime::roles
