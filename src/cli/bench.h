#pragma once

#include <span>
#include <string>

namespace slime::cli {

/// `slime bench NAME ...`: becomes the program slime-bench. ConfigError, with the command that builds
/// it, where that is not installed.
int bench(std::span<const std::string> arguments);

}  // namespace slime::cli
