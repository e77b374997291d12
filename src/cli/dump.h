#pragma once

/// `slime dump`: the samples of any rollout of a run.

#include <span>
#include <string>

namespace slime::cli {

int dump(std::span<const std::string> arguments);

}  // namespace slime::cli
