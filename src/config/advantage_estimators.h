#pragma once

/// Table of advantage estimators: what each word of --advantage-estimator means for advantages, objective
/// and baseline.
///
/// A new policy loss is an objective in algo/policy_objective.h, a row here, and a case in
/// setup/train_config.cpp, which the compiler asks for (CONTRIBUTING.md, "Add a policy loss").

#include <span>
#include <string_view>
#include <vector>

namespace slime::config {

struct AdvantageEstimator {
  enum class Advantages { kGroupRelative, kGae, kReinforcePlusPlus, kReinforceBaseline };
  enum class Objective { kTokenClip, kSequenceClip, kClippedWeight };
  /// What is subtracted from a sample's reward: of its group.
  enum class Baseline { kNone, kMean, kMeanAndStd, kLeaveOneOut };

  std::string_view word;
  Advantages advantages;
  Objective objective;
  Baseline baseline;
  /// The loss of a sample is divided by a constant, not by its length (Dr. GRPO).
  bool has_constant_divisor = false;

  /// Whether advantages contain --kl-coef times the KL.
  bool uses_kl_coef() const { return advantages != Advantages::kGroupRelative; }
  /// Whether returns are discounted sums, which need --normalize-advantages.
  bool needs_normalization() const {
    return advantages == Advantages::kReinforcePlusPlus ||
           advantages == Advantages::kReinforceBaseline;
  }
};

std::span<const AdvantageEstimator> advantage_estimators();

/// Throws BugError for a word that the flag does not allow.
const AdvantageEstimator& advantage_estimator_of(std::string_view word);

std::vector<std::string_view> words_of_advantage_estimators();

}  // namespace slime::config
