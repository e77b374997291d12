#pragma once

/// Verdict on a group whose samples are all generated and scored: one rule for steps and streams.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "core/sample.h"
#include "rollout/rollout.h"

namespace slime::rollout {

struct Verdict {
  enum class Kind {
    kKeep,
    kDrop,     // for `reason`: the filter's, or "failed"
    kGivenUp,  // the engine ended sample `index`, and nobody had asked for that
  };
  Kind kind = Kind::kKeep;
  std::string reason;
  std::size_t index = 0;  // of the sample that failed or was given up
};

/// `filtered`: the answer of a user's filter, if it was asked. `remaining` and `target` as
/// should_drop (core/filter_verdict.h).
Verdict verdict_on(const Group& group, const std::optional<FilterVerdict>& filtered,
                   const GroupFilter& filter, int64_t remaining, int64_t target);

/// One more group of the step, of which `num_kept` are kept, has failed or was given up. Throws
/// ConfigError with the reason when there are too many (RolloutConfig).
void count_failure(StepEnd& end, const RolloutConfig& config, int64_t num_kept,
                   const Sample& sample, const std::string& why);

/// One more group of the step was dropped for `reason`. Throws ConfigError when the filter has
/// dropped too many.
void count_drop(StepEnd& end, const RolloutConfig& config, int64_t num_kept,
                const std::string& reason);

/// To the supply, if there are any.
void tell_discarded(PromptSupply* prompts, int64_t ordinal, int64_t num_tokens);

/// Back to an untouched prompt. Returns how many response tokens that throws away.
int64_t forget_response(Group& group);

}  // namespace slime::rollout
