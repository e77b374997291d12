#include "cli/program.h"

#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <system_error>

#include "cli/options.h"
#include "cli/standard_output.h"
#include "config/secrets.h"
#include "core/descriptor_limit.h"
#include "core/error.h"
#include "core/json.h"
#include "core/safe_text.h"
#include "kernels/cpu/vector_math.h"

namespace slime::cli {
namespace {

/// What shells call a filter that was ended because its reader has closed: 128 + SIGPIPE.
constexpr int kClosedByReader = 141;

/// The reader of standard output has seen enough: no error that a person must read of.
bool was_closed_by_reader(const std::system_error& error) {
  return std::ferror(stdout) != 0 && error.code() == std::errc::broken_pipe;
}

int exit_code_of(CommandFn command, std::span<const std::string> arguments) {
  try {
    return command(arguments);
  } catch (const ManualAsked& asked) {
    fmt::print("{}\n", json_text(help::to_json(asked.manual)));
    return 0;
  }
}

/// Not fmt::print, which throws when standard error is gone too.
void print_error(std::string_view name, const std::exception& error) {
  std::fputs(fmt::format("{}: {}\n", name, safe_text(error.what())).c_str(), stderr);
}

}  // namespace

std::vector<std::string> begin_program(int argc, char** argv) {
  // Weights and activations in huge pages: a decode step reads every page of the weights once, and
  // walking the page tables for small ones took as long as reading (docs/benchmarks/cpu.md).
  // LibTorch's allocator reads this once.
  setenv("THP_MEM_ALLOC_ENABLE", "1", /*overwrite=*/0);
  std::vector<std::string> words(argv + 1, argv + argc);
  config::hide_secrets(std::span(argv, static_cast<std::size_t>(argc)));
  // A reader that went away (slime train ... | head) is an error of the write, not the end of a run.
  std::signal(SIGPIPE, SIG_IGN);
  // A limit of file sizes (ulimit -f) is an error of the write too, as a full disk is.
  std::signal(SIGXFSZ, SIG_IGN);
  raise_descriptor_limit();
  kernels::cpu::call_vector_math_once();
  return words;
}

int run_command(std::string_view name, CommandFn command, std::span<const std::string> arguments) {
  try {
    const int exit_code = exit_code_of(command, arguments);
    require_written();
    return exit_code;
  } catch (const ConfigError& error) {
    print_error(name, error);
    return 2;
  } catch (const std::system_error& error) {
    if (was_closed_by_reader(error)) return kClosedByReader;
    print_error(name, error);
    return 1;
  } catch (const std::exception& error) {
    print_error(name, error);
    return 1;
  }
}

}  // namespace slime::cli
