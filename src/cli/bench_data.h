#pragma once

/// `slime bench data`: how long a prompt file takes to load, and how much memory it keeps.

#include <span>
#include <string>

namespace slime::cli {

/// One JSON line: rows, seconds, bytes of the file, peak memory over what the process had before.
/// Returns the exit code.
int bench_data(std::span<const std::string> arguments);

}  // namespace slime::cli
