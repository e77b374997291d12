#pragma once

/// Parsing of a command's options with CLI11, with this program's exit codes.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <optional>
#include <span>
#include <string>

namespace slime::cli {

/// CLI::Range lets "nan" pass: it is neither below nor above anything.
inline CLI::Validator finite_range(double low, double high) {
  return {[low, high](const std::string& word) -> std::string {
            double number = 0;
            const bool is_number = CLI::detail::lexical_cast(word, number);
            if (is_number && number >= low && number <= high) return "";
            return fmt::format("{}: should be a number from {} to {}", word, low, high);
          },
          fmt::format("FLOAT in [{} - {}]", low, high)};
}

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
