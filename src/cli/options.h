#pragma once

/// Parsing of a command's options with CLI11, with this program's exit codes.

#include <CLI/CLI.hpp>
#include <optional>
#include <span>
#include <string>

namespace slime::cli {

/// Nothing when `app` took all arguments; otherwise the command is over with this exit code: 0
/// after --help, 2 after a message about what was wrong.
inline std::optional<int> parse_options(CLI::App& app, std::span<const std::string> arguments) {
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(),
                                       arguments.rend()));  // CLI11 takes them from the back
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  return std::nullopt;
}

}  // namespace slime::cli
