#pragma once

#include <span>
#include <string>

namespace slime::cli {

/// slime plan: layout, memory and messages of a run on devices that nobody has started.
int plan(std::span<const std::string> arguments);

}  // namespace slime::cli
