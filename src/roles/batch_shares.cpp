#include "roles/batch_shares.h"

#include <utility>

#include "core/error.h"
#include "roles/rank_tasks.h"

namespace slime::roles {

BatchShares::BatchShares(const comm::ParallelLayout& layout, std::vector<train::BatchShare> shares,
                         std::size_t num_samples)
    : layout_(layout), log_probs_(num_samples) {
  for (train::BatchShare& share : shares) {
    TrainerTask task{.kind = RankTask::kTrain, .share = std::move(share)};
    frames_.push_back(to_frame(task));
    shares_.push_back(std::move(task.share));
  }
}

std::size_t BatchShares::dp_of(int rank) const {
  return static_cast<std::size_t>(comm::coordinates_of(layout_, rank).dp);
}

void BatchShares::take(int rank, std::vector<std::vector<float>> log_probs) {
  const comm::Coordinates at = comm::coordinates_of(layout_, rank);
  if (at.tp > 0 || at.cp > 0 || at.pp + 1 < layout_.pp) return;
  const train::Indices& place = of(rank).batch_indices;
  check(log_probs.size() == place.size(), "a rank answers for each of its samples");
  for (std::size_t i = 0; i < log_probs.size(); ++i)
    log_probs_[static_cast<std::size_t>(place[i])] = std::move(log_probs[i]);
}

}  // namespace slime::roles
