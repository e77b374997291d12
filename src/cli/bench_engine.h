#pragma once

#include <span>
#include <string>

namespace slime::cli {

/// `slime bench engine ...`: generation speed on this machine, as JSON.
int bench_engine(std::span<const std::string> arguments);

}  // namespace slime::cli
