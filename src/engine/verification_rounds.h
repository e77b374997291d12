#pragma once

/// Rounds of fast steps and the step in training arithmetic that verifies their tokens: says which comes next
/// (docs/decisions/0167-verification.md, 4).

#include <cstdint>

#include "engine/scheduler.h"

namespace slime::engine {

class VerificationRounds {
 public:
  /// A round ends when so many rows wait for verification: larger steps do not compute a row in less time.
  static constexpr int64_t kEnoughRows = 2048;
  /// Stalled requests wait for at most so many fast steps, unless they are this share of all.
  static constexpr int64_t kMostFastSteps = 4;
  static constexpr int64_t kStalledShare = 4;  // one in so many

  /// `most_rows`: of a step.
  explicit VerificationRounds(int64_t most_rows);

  /// Whether the next step is one in training arithmetic. Once for each step.
  bool ends_with(const Scheduler& scheduler);

 private:
  bool is_due(const AheadCounts& counts) const;

  const int64_t enough_rows_;
  int64_t num_waited_ = 0;  // fast steps since a request stalled first
};

}  // namespace slime::engine
