#pragma once

/// A reward function as the rollout sees it: a finished sample in, a score out.
///
/// Native rewards (math, dapo, f1, ...) and, later, users' Python functions and remote judges
/// implement it. A verifier that fails or runs out of time is a third outcome, never a silent 0.

#include <cstdint>
#include <functional>
#include <string>

#include "core/expected.h"
#include "core/sample.h"

namespace slime::reward {

/// Scores one sample. Pure: may run on any thread, many at once. The value is a number or a record
/// such as
/// {"score": 1.0, "acc": true, "pred": "42"}.
using RewardFn = std::function<Expected<json::value>(const Sample& sample)>;

/// `type` is --rm-type: "math", "dapo", "deepscaler", "f1", "gpqa", "random", each also with the
/// prefix "boxed_"; a sample's metadata.rm_type wins over it (spec 16.1), and with an empty `type`
/// every sample needs one. Throws ConfigError with the list of known names for an unknown one.
/// `seed` is the run's, for "random".
RewardFn make_reward(const std::string& type, uint64_t seed = 0);

}  // namespace slime::reward
