#pragma once

/// `slime steps`: a run whose loop is another program's, which asks for one verb after the other.

#include <span>
#include <string>

namespace slime::cli {

int steps(std::span<const std::string> arguments);

}  // namespace slime::cli
