#pragma once

/// `slime logprobs`.

#include <span>
#include <string>

namespace slime::cli {

/// Scores token sequences: see `slime logprobs --help`.
int logprobs(std::span<const std::string> arguments);

}  // namespace slime::cli
