#pragma once

/// `slime worker`: one more rank of a run; `slime train` starts it.

#include <span>
#include <string>

namespace slime::cli {

int worker(std::span<const std::string> arguments);

}  // namespace slime::cli
