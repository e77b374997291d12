#include "roles/batch_shares.h"

#include <limits>
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

void BatchShares::take(int rank, train::TrainReport& report) {
  const comm::Coordinates at = comm::coordinates_of(layout_, rank);
  if (at.tp > 0 || at.cp > 0 || at.pp + 1 < layout_.pp) return;
  const train::Indices& place = of(rank).batch_indices;
  check(report.log_probs.size() == place.size(), "a rank answers for each of its samples");
  check(report.advantages.empty() || report.advantages.size() == place.size(),
        "a rank has an advantage of each of its samples, or of none");
  for (std::size_t i = 0; i < place.size(); ++i) {
    const auto at_whole = static_cast<std::size_t>(place[i]);
    log_probs_[at_whole] = std::move(report.log_probs[i]);
    if (report.advantages.empty()) continue;
    advantages_.resize(log_probs_.size(), std::numeric_limits<float>::quiet_NaN());
    advantages_[at_whole] = report.advantages[i];
  }
}

void BatchShares::move_to(train::TrainReport& report) {
  report.log_probs = std::move(log_probs_);
  report.advantages = std::move(advantages_);
}

}  // namespace slime::roles
