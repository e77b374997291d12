#include <fmt/format.h>

#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/options.h"
#include "cli/program.h"
#include "help/verbs.h"

namespace {

using Words = std::span<const std::string>;

int refuse(const std::string& word) {
  const std::vector<slime::help::Verb> verbs = slime::cli::verbs();
  const auto meant = slime::help::verb_meant_by(word, verbs);
  fmt::print(stderr, "slime: no command \"{}\"{}\nslime help lists them all\n", word,
             meant ? fmt::format("; did you mean slime {}?", *meant) : "");
  return 2;
}

int run(const std::string& name, Words arguments) {
  for (const auto& command : slime::cli::commands())
    if (name == command.name)
      return slime::cli::run_command("slime " + name, command.run, arguments);
  return refuse(name);
}

/// `slime help`, `slime help VERB WORDS`.
int help(Words words) {
  if (words.empty()) {
    fmt::print("{}",
               slime::help::list_of_verbs(slime::cli::verbs(), slime::cli::style_of_terminal()));
    return 0;
  }
  std::vector<std::string> arguments{"--help"};
  arguments.insert(arguments.end(), words.begin() + 1, words.end());
  return run(words[0], arguments);
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words = slime::cli::begin_program(argc, argv);
  if (words.empty()) {
    fmt::print("{}", slime::help::front_page(slime::cli::verbs(), slime::cli::style_of_terminal()));
    return 0;
  }
  const auto rest = Words(words).subspan(1);
  if (words[0] == "--help" || words[0] == "-h" || words[0] == "help") return help(rest);
  if (words[0] == "--version" || words[0] == "-V" || words[0] == "version") {
    fmt::print("slime {}\n", SLIME_VERSION);
    return 0;
  }
  return run(words[0], rest);
}
