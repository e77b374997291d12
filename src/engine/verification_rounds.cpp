#include "engine/verification_rounds.h"

#include <algorithm>

namespace slime::engine {

VerificationRounds::VerificationRounds(int64_t most_rows)
    : enough_rows_(std::min(kEnoughRows, most_rows)) {}

bool VerificationRounds::is_due(const AheadCounts& counts) const {
  if (counts.num_full > 0 || counts.rows_to_verify >= enough_rows_) return true;
  if (counts.num_stalled == 0) return false;
  return num_waited_ >= kMostFastSteps || counts.num_stalled * kStalledShare >= counts.num_able ||
         counts.rows_stalled >= enough_rows_;
}

bool VerificationRounds::ends_with(const Scheduler& scheduler) {
  const AheadCounts counts = scheduler.ahead_counts(enough_rows_);
  if (is_due(counts)) {
    num_waited_ = 0;
    return true;
  }
  if (counts.num_stalled > 0) ++num_waited_;
  return false;
}

}  // namespace slime::engine
