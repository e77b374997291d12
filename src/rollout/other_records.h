#pragma once

/// Responses of an earlier start of the run whose tokens have other records than this one keeps.
/// No trainer can replay such a mixture, so they are sampled anew.

#include <span>
#include <string>

#include "core/sample.h"
#include "rollout/response_rules.h"

namespace slime::rollout {

/// Top-p ids, likeliest tokens or choices of experts where `rules` have none, or the other way round;
/// or no log-probs, which the sample's function did not keep.
bool has_other_records(const Sample& sample, const ResponseRules& rules);

/// How many groups and tokens of those that wait are sampled anew, and which flags that is of; empty:
/// none.
std::string other_records_note(std::span<const Group* const> waiting, const ResponseRules& rules);

}  // namespace slime::rollout
