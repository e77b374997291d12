#pragma once

/// `slime inspect`.

#include <span>
#include <string>

namespace slime::cli {

/// Shows what a model directory or file holds: see `slime inspect --help`. Returns 1 when it has
/// problems.
int inspect(std::span<const std::string> arguments);

}  // namespace slime::cli
