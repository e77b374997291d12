#pragma once

/// `slime simulate`: what a run would be like on other devices; or one schedule of the simulator's
/// tests once more.

#include <span>
#include <string>

namespace slime::cli {

int simulate(std::span<const std::string> arguments);

}  // namespace slime::cli
