#pragma once

/// Failures of a run's first samples: a user's function that always raises ends the run at once.
///
/// The first groups are looked at until one sample has not failed, or has failed in another way. A
/// function that fails sometimes is left to the bounds of a step (rollout/verdict.h): where every second
/// reward fails, all of the first 32 do so in one of four thousand million runs. So are errors of
/// connections and deadlines, which may pass.

#include <cstdint>
#include <optional>
#include <string>

#include "core/sample.h"

namespace slime::rollout {

/// How a user's function failed: two failures are alike when the kind of error and its place are.
struct FailureKind {
  std::string error;  // "reward: ValueError"
  std::string place;  // "/my/rewards.py:12"
  friend bool operator==(const FailureKind&, const FailureKind&) = default;
};

/// Of "reward: ValueError: no such luck (/my/rewards.py:12)". Nothing where no place is named, or the
/// error is one that may pass.
std::optional<FailureKind> failure_kind(const std::string& failure);

class FirstFailures {
 public:
  /// So many are looked at before the run is ended: at least four groups, and 32 samples.
  static constexpr int64_t kGroups = 4;
  static constexpr int64_t kSamples = 32;

  /// A group whose samples are all sampled and scored, in the order in which they are judged. Throws
  /// ConfigError with the number of samples, the place and the message when all so far failed alike.
  void see(const Group& group);

 private:
  void see(const Sample& sample);

  bool is_over_ = false;  // a sample did not fail, or failed in another way
  std::optional<FailureKind> kind_;
  int64_t num_groups_ = 0;
  int64_t num_samples_ = 0;
};

}  // namespace slime::rollout
