#include "sandbox/program.h"

#include <array>

#include "core/error.h"

namespace slime::sandbox {
namespace {

constexpr const char* kBuilt = "/work/program";
constexpr std::string_view kWhite = " \t\r\n\v\f";

std::string_view without_white_end(std::string_view text) {
  return text.substr(0, text.find_last_not_of(kWhite) + 1);
}

const char* file_of(Language language) {
  switch (language) {
    case Language::kPython:
      return "/work/main.py";
    case Language::kShell:
      return "/work/main.sh";
    case Language::kCpp:
      return "/work/main.cpp";
  }
  throw BugError("a language without a file");
}

std::vector<std::string> words_of(Language language) {
  switch (language) {
    case Language::kPython:
      return {"python3", file_of(language)};
    case Language::kShell:
      return {::access("/bin/bash", X_OK) == 0 ? "bash" : "sh", file_of(language)};
    case Language::kCpp:
      return {kBuilt};
  }
  throw BugError("a language without a command");
}

Outcome not_written(const std::string& why) {
  return {.ending = Ending::kNotStarted,
          .code = EIO,
          .reason = "the code could not be written: " + why};
}

/// Writes the code and builds it. Nothing where there was nothing to build and no problem.
std::optional<Outcome> prepare(Sandbox& sandbox, const Program& program) {
  const char* file = file_of(program.language);
  if (const auto written = sandbox.write(file, program.code); !written)
    return not_written(written.error().message);
  if (program.language != Language::kCpp) return std::nullopt;
  return sandbox.run({.words = {"g++", "-O2", "-std=c++20", "-fopenmp", "-o", kBuilt, file}});
}

Outcome run_prepared(Sandbox& sandbox, const Program& program, const std::string& input) {
  Command command{.words = words_of(program.language), .input = input};
  command.words.insert(command.words.end(), program.arguments.begin(), program.arguments.end());
  return sandbox.run(std::move(command));
}

}  // namespace

std::optional<Language> language_named(std::string_view name) {
  if (name == "python" || name == "py") return Language::kPython;
  if (name == "shell" || name == "sh" || name == "bash") return Language::kShell;
  if (name == "c++" || name == "cpp" || name == "cc" || name == "cxx") return Language::kCpp;
  return std::nullopt;
}

ProgramOutcome run_program(Sandbox& sandbox, const Program& program) {
  ProgramOutcome outcome{.build = prepare(sandbox, program), .run = {}};
  outcome.run = outcome.is_built() ? run_prepared(sandbox, program, program.input) : *outcome.build;
  return outcome;
}

Judgement judge(Sandbox& sandbox, const Program& program, const std::vector<Case>& cases) {
  Judgement judgement{.build = prepare(sandbox, program), .cases = {}};
  if (judgement.build && !judgement.build->is_success()) return judgement;
  for (const Case& each : cases) {
    Outcome outcome = run_prepared(sandbox, program, each.input);
    const bool is_passed =
        outcome.is_success() && same_output(outcome.output, each.expected_output);
    judgement.cases.push_back({is_passed, std::move(outcome)});
  }
  return judgement;
}

bool same_output(std::string_view output, std::string_view expected) {
  output = without_white_end(output);
  expected = without_white_end(expected);
  for (;;) {
    const std::size_t end = output.find('\n'), expected_end = expected.find('\n');
    if (without_white_end(output.substr(0, end)) !=
        without_white_end(expected.substr(0, expected_end)))
      return false;
    if (end == std::string_view::npos || expected_end == std::string_view::npos)
      return end == expected_end;
    output.remove_prefix(end + 1);
    expected.remove_prefix(expected_end + 1);
  }
}

}  // namespace slime::sandbox
