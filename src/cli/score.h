#pragma once

/// `slime score`: a reward on responses that exist already, without training.

#include <span>
#include <string>

#include "core/json.h"
#include "reward/reward.h"

namespace slime::cli {

/// {"response", "label", "metadata"} lines to one line each: {"score": 1}, with "reward" where
/// the reward is a record, or {"score": null, "reason": "..."}; a summary on standard error.
int score(std::span<const std::string> arguments);

/// The answer to one line. `line` has "response" (null counts as empty) and may have "label",
/// "metadata" and "prompt"; `ordinal` is its number, which "random" draws by. Throws ConfigError
/// that starts with `where` when a member has another type.
json::object score_line(const json::object& line, int64_t ordinal, const reward::RewardFn& reward,
                        const std::string& reward_key, const std::string& where);

}  // namespace slime::cli
