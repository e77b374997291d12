#pragma once

#include <span>
#include <string>

namespace slime::cli {

/// `slime bench NAME ...`: speed on this machine, as JSON. One file per NAME.
int bench(std::span<const std::string> arguments);

}  // namespace slime::cli
