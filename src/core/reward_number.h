#pragma once

/// The number in a reward, which may come from a rule, a judge elsewhere or a file.

#include <string>

#include "core/expected.h"
#include "core/json.h"

namespace slime {

/// `reward` itself, or reward[reward_key] of a record; true is 1. An Error names the value when it
/// has no such key, is not a number (null, "x", [1]) or is not finite (1e400).
Expected<double> reward_number(const json::value& reward, const std::string& reward_key);

}  // namespace slime
