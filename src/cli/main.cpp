#include <fmt/format.h>

#include <cstdio>
#include <span>
#include <string_view>
#include <vector>

#include "cli/commands.h"
#include "cli/program.h"
#include "core/nearest_name.h"

namespace {

void print_help(std::FILE* out) {
  fmt::print(out,
             "slime: reinforcement learning for language models, in one program.\n\nUsage: slime "
             "COMMAND [OPTIONS]\n\n");
  for (const auto& command : slime::cli::commands())
    fmt::print(out, "  {:<14} {}\n", command.name, command.summary);
  fmt::print(out, "\n`slime COMMAND --help` lists a command's options.\n");
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words = slime::cli::begin_program(argc, argv);
  if (words.empty() || words[0] == "--help" || words[0] == "-h" || words[0] == "help") {
    print_help(words.empty() ? stderr : stdout);
    return words.empty() ? 2 : 0;
  }
  if (words[0] == "--version") {
    fmt::print("slime {}\n", SLIME_VERSION);
    return 0;
  }
  for (const auto& command : slime::cli::commands()) {
    if (words[0] == command.name)
      return slime::cli::run_command("slime " + words[0], command.run, std::span(words).subspan(1));
  }
  std::vector<std::string_view> names;
  for (const auto& command : slime::cli::commands()) names.emplace_back(command.name);
  const auto nearest = slime::nearest_name(words[0], names);
  fmt::print(stderr, "slime: no command \"{}\"{}\n\n", words[0],
             nearest ? fmt::format("; did you mean {}?", *nearest) : "");
  print_help(stderr);
  return 2;
}
