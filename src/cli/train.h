#pragma once

/// `slime train`: reinforcement learning, or supervised training, of a model directory;
/// `slime train-async`: reinforcement learning with generation beside it.

#include <span>
#include <string>

namespace slime::cli {

int train(std::span<const std::string> arguments);
int train_async(std::span<const std::string> arguments);

}  // namespace slime::cli
