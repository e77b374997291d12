#pragma once

/// `slime sandbox`: model-written code in bubblewrap, once by hand or for another process.

#include <span>
#include <string>

namespace slime::cli {

/// Runs FILE, or standard input, as a program in a sandbox of its own. The exit code is the program's;
/// 128 and the signal that ended it; 124 for a limit; 125 when it did not start. Throws ConfigError
/// where there can be no sandbox.
int sandbox(std::span<const std::string> arguments);

}  // namespace slime::cli
