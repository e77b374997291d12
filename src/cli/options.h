#pragma once

/// Parsing of a command's options with CLI11, with this program's exit codes.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/nearest_name.h"

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

/// The option of `app` that an unknown word is meant for: one of few letters' difference, or one that
/// the word only adds to (--model-path for --model).
inline std::optional<std::string> option_meant_by(const CLI::App& app, const std::string& word) {
  const std::string name = word.substr(0, word.find('='));
  std::vector<std::string> known;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& each : option->get_lnames()) known.push_back("--" + each);
  }
  const std::vector<std::string_view> names(known.begin(), known.end());
  if (const auto nearest = nearest_name(name, names)) return std::string(*nearest);
  for (const std::string& each : known)
    if (name.starts_with(each + "-")) return each;
  return std::nullopt;
}

/// A line for each option that `app` does not have.
inline void tell_unknown_options(const CLI::App& app) {
  for (const std::string& word : app.remaining()) {
    if (!word.starts_with("-")) continue;
    const auto meant = option_meant_by(app, word);
    fmt::print(stderr, "{}: unknown option {}{}\n", app.get_name(), word,
               meant ? fmt::format("; did you mean {}?", *meant) : "");
  }
}

/// Nothing when `app` took all arguments; otherwise the command is over with this exit code: 0
/// after --help, 2 after a message about what was wrong.
inline std::optional<int> parse_options(CLI::App& app, std::span<const std::string> arguments) {
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(),
                                       arguments.rend()));  // CLI11 takes them from the back
  } catch (const CLI::ExtrasError& error) {
    tell_unknown_options(app);
    app.exit(error);
    return 2;
  } catch (const CLI::RequiredError& error) {
    tell_unknown_options(app);  // --modle instead of --model
    app.exit(error);
    return 2;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  return std::nullopt;
}

}  // namespace slime::cli
