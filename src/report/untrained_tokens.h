#pragma once

/// Untrained sampled tokens: how many tokens of a step the engines sampled and no update trains, by
/// cause. A metric of every rollout step, and a line where they are many.
///
///   100 sampled, of them 20 in a group that the filter dropped and 5 of a turn that the generate
///   function returned in no sample:
///     perf/untrained_sampled_tokens 0.25   rollout/untrained_sampled_tokens 0.25
///     rollout/untrained/dropped_zero_std 0.2   rollout/untrained/lost 0.05

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "core/sample.h"
#include "report/metrics.h"

namespace slime::report {

/// Tokens by cause: "lost" (in no sample that a function returned, or masked there), "masked" (by
/// their loss mask, where no function drew them), "older" (masked as of older weights), "removed"
/// (remove_sample), "failed" (samples without a verdict), "discarded" (sampled after the step had
/// closed, or not kept by rule), "dropped_<reason>" (groups that a filter or the staleness policy
/// dropped).
using UntrainedTokens = std::map<std::string, int64_t>;

struct SampledTokens {
  int64_t trained = 0;
  UntrainedTokens untrained;
  int64_t all() const;
};

/// Tokens of the groups that a step trains, added to `others`, which the groups do not show.
/// `masks_are_lost`: functions made the samples, and what they mask is in others["lost"].
SampledTokens sampled_tokens(std::span<const Group> groups, UntrainedTokens others,
                             bool masks_are_lost);

/// Those that the loss masks leave.
int64_t num_trained_tokens(std::span<const Group> groups);

/// perf/untrained_sampled_tokens, a share of all; rollout/untrained_sampled_tokens, of those that were
/// not discarded, and its causes as rollout/untrained/<cause>. How many are discarded is a matter of
/// time, and equal runs have equal numbers under rollout/. Empty when nothing was sampled.
Metrics untrained_metrics(const SampledTokens& tokens);

/// The line for people: with each cause above one per cent when it is told for the first time, and
/// again when its share has doubled since.
class UntrainedNotice {
 public:
  std::optional<std::string> line(int64_t step, const SampledTokens& tokens);

 private:
  std::map<std::string, double> told_;  // share by cause
};

}  // namespace slime::report
