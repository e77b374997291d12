#pragma once

/// `slime replay`: trains once more on what a run drew, in its order, and compares the weights.

#include <span>
#include <string>

namespace slime::cli {

int replay(std::span<const std::string> arguments);

}  // namespace slime::cli
