#include "config/advantage_estimators.h"

#include <algorithm>
#include <array>
#include <string>

#include "core/error.h"

namespace slime::config {
namespace {

using enum AdvantageEstimator::Advantages;
using enum AdvantageEstimator::Objective;
using Baseline = AdvantageEstimator::Baseline;

constexpr auto kEstimators = std::to_array<AdvantageEstimator>({
    {"grpo", kGroupRelative, kTokenClip, Baseline::kMeanAndStd},
    {"gspo", kGroupRelative, kSequenceClip, Baseline::kMeanAndStd},
    {"cispo", kGroupRelative, kClippedWeight, Baseline::kMeanAndStd},
    {"reinforce_plus_plus", kReinforcePlusPlus, kTokenClip, Baseline::kNone},
    {"reinforce_plus_plus_baseline", kReinforceBaseline, kTokenClip, Baseline::kMean},
    {"ppo", kGae, kTokenClip, Baseline::kNone},
    {"rloo", kGroupRelative, kTokenClip, Baseline::kLeaveOneOut},
    {"dr_grpo", kGroupRelative, kTokenClip, Baseline::kMean, true},
});

}  // namespace

std::span<const AdvantageEstimator> advantage_estimators() { return kEstimators; }

const AdvantageEstimator& advantage_estimator_of(std::string_view word) {
  const auto* found = std::ranges::find(kEstimators, word, &AdvantageEstimator::word);
  check(found != kEstimators.end(), "no advantage estimator " + std::string(word));
  return *found;
}

std::vector<std::string_view> words_of_advantage_estimators() {
  std::vector<std::string_view> words;
  for (const AdvantageEstimator& estimator : kEstimators) words.push_back(estimator.word);
  return words;
}

}  // namespace slime::config
