#pragma once

/// Parsing of a command's options with CLI11, with this program's help and exit codes.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "help/manual.h"

namespace slime::cli {

/// `slime VERB --help-json`: the command's manual, for programs and for completion.
inline constexpr std::string_view kHelpJson = "--help-json";
bool asks_for_manual(std::span<const std::string> arguments);

/// Thrown by a command that is asked for its manual: run_command() prints it.
struct ManualAsked : std::exception {
  explicit ManualAsked(help::Manual asked) : manual(std::move(asked)) {}
  const char* what() const noexcept override { return "--help-json: stands alone"; }
  help::Manual manual;
};

/// CLI::Range lets "nan" pass: it is neither below nor above anything.
CLI::Validator finite_range(double low, double high);

/// Answers `words` behind --help on standard output. The exit code: 2 where nothing was found.
int print_answer(const help::Manual& manual, std::span<const std::string> words);
/// Width and colours of standard output.
help::Style style_of_terminal();

/// The option that an unknown word is meant for: one of few letters' difference, or one that
/// the word only adds to (--model-path for --model).
std::optional<std::string> option_meant_by(const help::Manual& manual, const std::string& word);

/// Nothing when `app` took all arguments; otherwise the command is over with this exit code: 0
/// after --help, 2 after a message about what was wrong.
std::optional<int> parse_options(CLI::App& app, std::span<const std::string> arguments);

}  // namespace slime::cli
