#pragma once

/// `slime score`: a reward on responses that exist already, without training.

#include <span>
#include <string>

#include "core/json.h"
#include "reward/reward.h"

namespace slime::cli {

/// {"response", "label", "metadata"} lines to one line each: {"score": 1}, with "reward" where
/// the reward is a record, or {"score": null, "reason": "..."}; a summary on standard error. 0 when
/// every line has a score, 1 when one has none. Throws ConfigError for input that is no such lines.
int score(std::span<const std::string> arguments);

/// What lines are scored with.
struct Scoring {
  std::string type;  // "--rm-type"
  reward::RewardConfig config;
  std::string reward_key;
};

/// The answer to one line. `line` has "response" (null counts as empty) and may have "label",
/// "metadata" and "prompt"; `ordinal` is its number, which "random" draws by. Throws ConfigError
/// that starts with `where` when a member has another type, or asks for a reward that does not exist
/// or has no server.
json::object score_line(const json::object& line, int64_t ordinal, const Scoring& how,
                        const std::string& where);

}  // namespace slime::cli
