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

int print_front_page(Words /*none*/) {
  fmt::print("{}", slime::help::front_page(slime::cli::verbs(), slime::cli::style_of_terminal()));
  return 0;
}

int print_verbs(Words /*none*/) {
  fmt::print("{}",
             slime::help::list_of_verbs(slime::cli::verbs(), slime::cli::style_of_terminal()));
  return 0;
}

int print_version(Words /*none*/) {
  fmt::print("slime {}\n", SLIME_VERSION);
  return 0;
}

bool asks_for_help(const std::string& word) {
  return word == "--help" || word == "-h" || word == "help";
}

bool asks_for_version(const std::string& word) {
  return word == "--version" || word == "-V" || word == "version";
}

/// `slime help`, `slime help VERB WORDS`; `slime help help` is the first again.
int help(Words words) {
  if (words.empty() || asks_for_help(words[0]) || asks_for_version(words[0]))
    return slime::cli::run_command("slime help", print_verbs, {});
  std::vector<std::string> arguments{"--help"};
  arguments.insert(arguments.end(), words.begin() + 1, words.end());
  return run(words[0], arguments);
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words = slime::cli::begin_program(argc, argv);
  if (words.empty()) return slime::cli::run_command("slime", print_front_page, {});
  const auto rest = Words(words).subspan(1);
  if (asks_for_help(words[0])) return help(rest);
  if (asks_for_version(words[0]))
    return slime::cli::run_command("slime version", print_version, {});
  return run(words[0], rest);
}
