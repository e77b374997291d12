#pragma once

/// `slime train`: reinforcement learning, or supervised training, of a model directory;
/// `slime train-async`: reinforcement learning with generation beside it.

#include <span>
#include <string>

#include "help/manual.h"

namespace slime::cli {

int train(std::span<const std::string> arguments);
int train_async(std::span<const std::string> arguments);
/// Of "slime train" or a command that takes its flags.
help::Manual train_manual(const std::string& command);

}  // namespace slime::cli
