#pragma once

/// `slime bench algo`: the policy loss and its gradient on a million tokens, against the speed of
/// memory.

#include <span>
#include <string>

namespace slime::cli {

/// One JSON line per objective. Returns the exit code.
int bench_algo(std::span<const std::string> arguments);

}  // namespace slime::cli
