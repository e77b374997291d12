#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "cli/commands.h"
#include "config/secrets.h"
#include "core/error.h"
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

/// What shells call a filter that was ended because nobody reads on: 128 + SIGPIPE.
constexpr int kClosedByReader = 141;

/// The reader of standard output has seen enough: no error that a person must read of.
bool was_closed_by_reader(const std::system_error& error) {
  return std::ferror(stdout) != 0 && error.code() == std::errc::broken_pipe;
}

/// Not fmt::print, which throws when standard error is gone too.
void print_error(std::string_view command, const std::exception& error) {
  std::fputs(fmt::format("slime {}: {}\n", command, error.what()).c_str(), stderr);
}

}  // namespace

int main(int argc, char** argv) {
  // Weights and activations in huge pages: a decode step reads every page of the weights once, and
  // walking the page tables for small ones took as long as reading (docs/benchmarks/cpu.md).
  // LibTorch's allocator reads this once.
  setenv("THP_MEM_ALLOC_ENABLE", "1", /*overwrite=*/0);
  const std::vector<std::string> words(argv + 1, argv + argc);
  slime::config::hide_secrets(std::span(argv, static_cast<std::size_t>(argc)));
  // A reader that went away (slime train ... | head) is an error of the write, not the end of a run.
  std::signal(SIGPIPE, SIG_IGN);
  // A limit of file sizes (ulimit -f) is an error of the write too, as a full disk is.
  std::signal(SIGXFSZ, SIG_IGN);
  if (words.empty() || words[0] == "--help" || words[0] == "-h" || words[0] == "help") {
    print_help(words.empty() ? stderr : stdout);
    return words.empty() ? 2 : 0;
  }
  if (words[0] == "--version") {
    fmt::print("slime {}\n", SLIME_VERSION);
    return 0;
  }
  for (const auto& command : slime::cli::commands()) {
    if (words[0] != command.name) continue;
    try {
      return command.run(std::span(words).subspan(1));
    } catch (const slime::ConfigError& error) {
      print_error(command.name, error);
      return 2;
    } catch (const std::system_error& error) {
      if (was_closed_by_reader(error)) return kClosedByReader;
      print_error(command.name, error);
      return 1;
    } catch (const std::exception& error) {
      print_error(command.name, error);
      return 1;
    }
  }
  std::vector<std::string_view> names;
  for (const auto& command : slime::cli::commands()) names.emplace_back(command.name);
  const auto nearest = slime::nearest_name(words[0], names);
  fmt::print(stderr, "slime: no command \"{}\"{}\n\n", words[0],
             nearest ? fmt::format("; did you mean {}?", *nearest) : "");
  print_help(stderr);
  return 2;
}
