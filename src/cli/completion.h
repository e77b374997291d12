#pragma once

/// `slime completion SHELL`: the script that a shell completes this program's commands by.

#include <span>
#include <string>

namespace slime::cli {

int completion(std::span<const std::string> arguments);

}  // namespace slime::cli
