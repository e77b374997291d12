#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "config/secrets.h"
#include "core/error.h"

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
  // Weights and activations in huge pages: a decode step reads every page of the weights once, and
  // walking the page tables for small ones took as long as reading (docs/benchmarks/cpu.md).
  // LibTorch's allocator reads this once.
  setenv("THP_MEM_ALLOC_ENABLE", "1", /*overwrite=*/0);
  const std::vector<std::string> words(argv + 1, argv + argc);
  slime::config::hide_secrets(std::span(argv, static_cast<std::size_t>(argc)));
  if (words.empty() || words[0] == "--help" || words[0] == "-h" || words[0] == "help") {
    print_help(words.empty() ? stderr : stdout);
    return words.empty() ? 2 : 0;
  }
  for (const auto& command : slime::cli::commands()) {
    if (words[0] != command.name) continue;
    try {
      return command.run(std::span(words).subspan(1));
    } catch (const slime::ConfigError& error) {
      fmt::print(stderr, "slime {}: {}\n", command.name, error.what());
      return 2;
    } catch (const std::exception& error) {
      fmt::print(stderr, "slime {}: {}\n", command.name, error.what());
      return 1;
    }
  }
  fmt::print(stderr, "slime: no command \"{}\"\n\n", words[0]);
  print_help(stderr);
  return 2;
}
