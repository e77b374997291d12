#pragma once

#include <span>
#include <string>

namespace slime::bench {

/// Words of a command line, after the command's name.
using Arguments = std::span<const std::string>;

}  // namespace slime::bench
