#pragma once

/// `slime check`: a device beside references, with a report to post.

#include <span>
#include <string>

namespace slime::cli {

int check_command(std::span<const std::string> arguments);

}  // namespace slime::cli
