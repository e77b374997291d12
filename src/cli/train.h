#pragma once

/// `slime train`: reinforcement learning, or supervised training, of a model directory.

#include <span>
#include <string>

namespace slime::cli {

int train(std::span<const std::string> arguments);

}  // namespace slime::cli
