#include "cli/sandbox.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "cli/options.h"
#include "cli/sibling.h"
#include "cli/standard_output.h"
#include "core/bounded_queue.h"
#include "core/error.h"
#include "core/json_lines.h"
#include "core/safe_text.h"
#include "sandbox/program.h"
#include "sandbox/service.h"

namespace slime::cli {
namespace {

constexpr int kLimitReached = 124;  // as timeout(1) ends
constexpr int kNotStarted = 125;
constexpr int kSignalled = 128;

std::string bytes_of(std::istream& stream) {
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

std::string bytes_of_file(const std::string& name) {
  if (name.empty() || name == "-") return bytes_of(std::cin);
  std::ifstream file(name, std::ios::binary);
  if (!file || std::filesystem::is_directory(name))
    throw ConfigError(fmt::format("{}: cannot be read", name));
  return bytes_of(file);
}

/// What a program wrote: as it is in a pipe, safe on a terminal.
std::string shown(const std::string& text, int descriptor) {
  return ::isatty(descriptor) == 0 ? text : safe_text(text);
}

int exit_code_of(const sandbox::Outcome& outcome) {
  switch (outcome.ending) {
    case sandbox::Ending::kExited:
      return outcome.code;
    case sandbox::Ending::kSignal:
      return kSignalled + outcome.code;
    case sandbox::Ending::kNotStarted:
    case sandbox::Ending::kEnded:
      return kNotStarted;
    default:
      return kLimitReached;
  }
}

int run_once(const sandbox::SandboxConfig& config, const sandbox::Program& program, bool as_json) {
  sandbox::Sandbox sandbox(config);
  const sandbox::ProgramOutcome outcome = sandbox::run_program(sandbox, program);
  if (as_json) {
    json::object line = to_json(outcome.run);
    line["is_built"] = outcome.is_built();
    write_json_line(line);
    return 0;
  }
  std::fputs(shown(outcome.run.output, STDOUT_FILENO).c_str(), stdout);
  require_written();
  std::fputs(shown(outcome.run.error, STDERR_FILENO).c_str(), stderr);
  if (!outcome.run.reason.empty()) {
    std::fputs(fmt::format("slime sandbox: {}{}\n",
                           outcome.is_built() ? "" : "the compiler: ", outcome.run.reason)
                   .c_str(),
               stderr);
  }
  return exit_code_of(outcome.run);
}

/// Ends the process with what it runs: every sandbox in it ends with it, and nobody waits for answers.
[[noreturn]] void end_at_once(int exit_code, const std::string& words = "") {
  if (!words.empty()) std::fputs(fmt::format("slime sandbox: {}\n", words).c_str(), stderr);
  std::fflush(stdout);
  ::_exit(exit_code);
}

/// Requests are answered as they are done, by `threads` threads, until the input ends.
[[noreturn]] void serve_lines(const sandbox::SandboxConfig& config, int threads) {
  sandbox::Sandbox{config};  // refuses here, before anybody asks
  sandbox::Service service(config);
  JsonLines input("-", std::size_t{512} << 20);
  BoundedQueue<json::object> requests(static_cast<std::size_t>(threads));
  std::mutex output;
  const auto work = [&] {
    while (const auto request = requests.pop()) {
      const json::object answer = service.answer(*request);
      try {
        const std::lock_guard lock(output);
        write_json_line(answer);
      } catch (const std::system_error&) {
        end_at_once(0);  // nobody reads
      }
    }
  };
  std::vector<std::jthread> workers;
  for (int i = 0; i < threads; ++i) workers.emplace_back(work);
  try {
    while (auto request = input.next()) requests.push(std::move(*request));
  } catch (const ConfigError& error) {
    end_at_once(2, error.what());
  }
  end_at_once(0);
}

}  // namespace

int sandbox(std::span<const std::string> arguments) {
  become_sibling("slime-sandbox", arguments);
  sandbox::SandboxConfig config;
  sandbox::Limits& limits = config.limits;
  std::string file, language, input_file;
  std::vector<std::string> readable;
  double seconds = 10;
  int64_t memory_mb = 1024, output_kb = 1024, disk_mb = 256;
  int threads = std::max(16, 4 * static_cast<int>(std::thread::hardware_concurrency()));
  bool as_json = false, serves = false, checks = false;
  using Ceilings = sandbox::LimitCeilings;
  CLI::App app(
      "Model-written code in bubblewrap: no network, nothing of this machine but its programs.",
      "slime sandbox");
  app.add_option("--language", language, "python, shell or c++; from the file's name, else python");
  app.add_option("--input", input_file, "the program's standard input");
  app.add_option("--seconds", seconds, "of a command")
      ->check(finite_range(0.001, std::chrono::duration<double>(Ceilings::kTime).count()))
      ->capture_default_str();
  const auto add_count = [&](const char* name, int64_t& value, int64_t low, int64_t high,
                             const char* text) {
    app.add_option(name, value, text)->check(CLI::Range(low, high))->capture_default_str();
  };
  add_count("--memory-mb", memory_mb, 16, Ceilings::kBytes >> 20, "of all processes together");
  add_count("--processes", limits.processes, 1, Ceilings::kProcesses, "and threads");
  add_count("--output-kb", output_kb, 1, Ceilings::kOutputBytes >> 10, "of each output");
  add_count("--disk-mb", disk_mb, 1, Ceilings::kBytes >> 20, "of all files; they are in memory");
  add_count("--files", limits.files, 16, Ceilings::kFiles, "and folders");
  add_count("--open-files", limits.open_files, 16, Ceilings::kOpenFiles, "of a process");
  app.add_option("--readable", readable,
                 "a file or folder that is shown, read-only; may be repeated");
  app.add_option("--gpu", config.gpu,
                 "N of /dev/nvidiaN: one NVIDIA GPU and the driver's libraries")
      ->check(CLI::Range(0, sandbox::kLastGpu));
  app.add_flag("--json", as_json, "the outcome as one JSON line; the exit code is 0 then");
  app.add_flag("--check", checks, "only says whether there can be a sandbox here");
  app.add_flag("--serve", serves,
               "requests from standard input, answers to standard output, JSON lines");
  app.add_option("--threads", threads, "of --serve: commands at the same time")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("FILE", file, "the program; standard input when it is missing or -");
  if (const auto exit_code = parse_options(app, arguments)) return *exit_code;

  limits.time =
      std::chrono::ceil<std::chrono::milliseconds>(std::chrono::duration<double>(seconds));
  limits.memory_bytes = memory_mb << 20;
  limits.output_bytes = output_kb << 10;
  limits.disk_bytes = disk_mb << 20;
  for (const std::string& path : readable)
    config.readable.push_back(std::filesystem::absolute(path).lexically_normal());
  if (checks) {
    const sandbox::Availability here = sandbox::availability(config);
    if (!here.problem.empty()) throw ConfigError(here.problem);
    fmt::print("works\nmemory is bounded by {}\n", here.memory_bound);
    return 0;
  }
  if (serves) serve_lines(config, threads);
  if (language.empty()) {
    const std::string suffix = std::filesystem::path(file).extension().string();
    language = suffix.empty() ? "python" : suffix.substr(1);
  }
  const auto known = sandbox::language_named(language);
  if (!known)
    throw ConfigError(fmt::format("--language {}: should be python, shell or c++", language));
  if ((file.empty() || file == "-") && input_file == "-")
    throw ConfigError("--input -: the program comes from standard input already");
  const sandbox::Program program{
      .language = *known,
      .code = bytes_of_file(file),
      .input = input_file.empty() ? std::string() : bytes_of_file(input_file)};
  return run_once(config, program, as_json);
}

}  // namespace slime::cli
