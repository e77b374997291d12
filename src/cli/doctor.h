#pragma once

/// `slime doctor`: whether this machine is ready, and with flags of a run, whether that is.

#include <span>
#include <string>

namespace slime::cli {

int doctor(std::span<const std::string> arguments);

}  // namespace slime::cli
