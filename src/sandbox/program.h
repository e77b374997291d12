#pragma once

/// Code of a model as a program: written into a sandbox, built where its language is built, run, and
/// judged by what it printed.
///
/// The judgement is made here, outside. What a case expects never enters the sandbox, so code can
/// earn it by computing it and in no other way: printing "PASS", ending with 0, or reading what is
/// there gives nothing.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sandbox/sandbox.h"

namespace slime::sandbox {

enum class Language {
  kPython,  // python3 FILE
  kShell,   // bash FILE, or sh where there is no bash
  kCpp,     // g++ -O2 -std=c++20 -fopenmp, then the program
};

/// "python" and "py", "shell", "sh" and "bash", "c++", "cpp", "cc" and "cxx".
std::optional<Language> language_named(std::string_view name);

struct Program {
  Language language = Language::kPython;
  std::string code;
  std::vector<std::string> arguments;
  std::string input;
};

struct ProgramOutcome {
  std::optional<Outcome> build;  // of languages that are built
  /// How the program ended, or, where it was not built, how the build did.
  Outcome run;
  bool is_built() const { return !build || build->is_success(); }
};

ProgramOutcome run_program(Sandbox& sandbox, const Program& program);

struct Case {
  std::string input;
  std::string expected_output;
};

struct Judgement {
  std::optional<Outcome> build;
  struct OfCase {
    bool is_passed = false;
    Outcome outcome;
  };
  std::vector<OfCase> cases;  // none when it was not built
};

/// Built once, run for each case, its input instead of the program's. A case is passed by a program
/// that ends with 0 and prints what is expected (same_output).
Judgement judge(Sandbox& sandbox, const Program& program, const std::vector<Case>& cases);

/// The same lines, apart from white space at the ends of lines and of the whole.
bool same_output(std::string_view output, std::string_view expected);

}  // namespace slime::sandbox
