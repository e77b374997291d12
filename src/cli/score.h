#pragma once

/// `slime score`: a reward on responses that exist already, without training.

#include <span>
#include <string>

#include "reward/score_record.h"

namespace slime::cli {

/// {"response", "label", "metadata"} lines to one line each: {"score": 1}, with "reward" where
/// the reward is a record, or {"score": null, "reason": "..."}; a summary on standard error. 0 when
/// every line has a score, 1 when one has none. Throws ConfigError for input that is no such lines.
int score(std::span<const std::string> arguments);

}  // namespace slime::cli
