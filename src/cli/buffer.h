#pragma once

/// `slime buffer`: the rollout buffer service that generators write to and a trainer reads from.

#include <span>
#include <string>

namespace slime::cli {

int buffer(std::span<const std::string> arguments);

}  // namespace slime::cli
