/// The program slime-sandbox: `slime sandbox` without the rest of slime. Each command in a sandbox begins
/// with a copy of the process that asks for it, and this one is small: LibTorch's tables alone make
/// a copy cost several milliseconds.

#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "cli/sandbox.h"
#include "cli/standard_output.h"
#include "core/error.h"

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  const std::vector<std::string> words(argv + 1, argv + argc);
  try {
    const int exit_code = slime::cli::sandbox(words);
    slime::cli::require_written();
    return exit_code;
  } catch (const std::exception& error) {
    std::fputs(fmt::format("slime sandbox: {}\n", error.what()).c_str(), stderr);
    return dynamic_cast<const slime::ConfigError*>(&error) != nullptr ? 2 : 1;
  }
}
