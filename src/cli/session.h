#pragma once

/// `slime session`: engines that outlive their trainers, listed and ended.

#include <span>
#include <string>

namespace slime::cli {

int session(std::span<const std::string> arguments);

}  // namespace slime::cli
