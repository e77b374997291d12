#pragma once

/// SGLang's launch flags that have nothing to switch here: published commands contain them, so they are
/// accepted, and a line says why they change nothing. What acts is in cli/serve_options.cpp.

#include <CLI/CLI.hpp>
#include <span>
#include <string_view>

namespace slime::cli {

struct SglangFlag {
  enum class Takes { kNothing, kWord, kWords };

  const char* name;  // "--dp-size,--data-parallel-size"
  Takes takes = Takes::kWord;
  /// Words, separated by blanks, that ask for what is done anyway: nothing is said.
  std::string_view usual = {};
  std::string_view reason;
};

std::span<const SglangFlag> idle_sglang_flags();

/// Adds them all; a line on standard error for each one given.
void add_idle_sglang_flags(CLI::App& app);

}  // namespace slime::cli
