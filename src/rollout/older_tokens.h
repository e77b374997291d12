#pragma once

/// Tokens of weights that are no longer the newest, and the loss mask.

#include <optional>

#include "core/sample.h"

namespace slime::rollout {

/// The newest version that drew a token of the group; kNoVersion (core/version_runs.h): none did.
WeightVersion newest_version(const Group& group);

/// The oldest; nothing: no weights drew any.
std::optional<WeightVersion> oldest_version(const Group& group);

/// Response tokens that are not of `version` or a newer one are not trained
/// (--mask-offpolicy-in-partial-rollout).
void mask_tokens_before(Group& group, WeightVersion version);

}  // namespace slime::rollout
