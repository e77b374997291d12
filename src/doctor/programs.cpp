#include "doctor/programs.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <vector>

#include "core/error.h"
#include "core/json.h"
#include "plugin/host_process.h"
#include "sandbox/sandbox.h"

namespace slime::doctor {
namespace {

constexpr std::chrono::seconds kPythonPatience{10};
constexpr std::size_t kLongestAnswer = std::size_t{64} << 10;

/// Packages that some flag, function or reader asks for.
constexpr const char* kScript = R"(
import importlib.util, json, sys
def there(name):
    try:
        return importlib.util.find_spec(name) is not None
    except Exception:
        return False
names = ["slime", "torch", "numpy", "wandb", "mlflow", "trackio", "math_verify", "transformers"]
print(json.dumps({"version": list(sys.version_info[:3]), "path": sys.executable, "packages": [n for n in names if there(n)]}))
)";

struct Ended {
  std::string output;
  std::string problem;  // empty: it ended with 0
};

/// Standard output of a program, whose standard error goes nowhere.
Ended output_of(const std::vector<std::string>& words) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return {"", std::strerror(errno)};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const std::vector<std::string> variables = plugin::python_environment();
  std::vector<char*> environment;
  for (const std::string& each : variables) environment.push_back(const_cast<char*>(each.c_str()));
  environment.push_back(nullptr);
  pid_t child = 0;
  const int error =
      ::posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environment.data());
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  Ended ended;
  if (error != 0) {
    ::close(ends[0]);
    return {"", std::strerror(error)};
  }
  const auto deadline = std::chrono::steady_clock::now() + kPythonPatience;
  for (std::array<char, 4096> piece{};;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    pollfd look{.fd = ends[0], .events = POLLIN, .revents = 0};
    if (left.count() <= 0 || ::poll(&look, 1, static_cast<int>(left.count())) <= 0) {
      ended.problem = fmt::format("gave no answer in {} s", kPythonPatience.count());
      break;
    }
    const ssize_t got = ::read(ends[0], piece.data(), piece.size());
    if (got <= 0) break;
    ended.output.append(piece.data(), static_cast<std::size_t>(got));
    if (ended.output.size() > kLongestAnswer) break;
  }
  ::close(ends[0]);
  if (!ended.problem.empty()) ::kill(child, SIGKILL);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (ended.problem.empty() && status != 0) ended.problem = "ended with an error";
  return ended;
}

}  // namespace

Checks check_python(const std::string& python) {
  const Ended ended = output_of({python, "-c", kScript});
  const std::string cure =
      "only functions of yours, wandb and files of other systems need it: install python3, or name "
      "one with --plugin-python";
  const auto note = [&](std::string why) {
    return Checks{{.area = "python",
                   .state = State::kNote,
                   .what = fmt::format("{}: {}", python, why),
                   .cure = cure}};
  };
  if (!ended.problem.empty()) return note(ended.problem);
  json::value said;
  try {
    said = parse_json(ended.output, python);
  } catch (const ConfigError&) {
    return note("prints something else than it was asked for");
  }
  std::vector<std::string> packages;
  for (const json::value& name : said.at("packages").as_array())
    packages.emplace_back(name.as_string());
  const auto major = said.at("version").at(0).to_number<int>(),
             minor = said.at("version").at(1).to_number<int>();
  Check check{.area = "python",
              .what = fmt::format(
                  "{}.{} ({}), with {}", major, minor, std::string(said.at("path").as_string()),
                  packages.empty() ? std::string("none of the packages that are used")
                                   : fmt::format("{}", fmt::join(packages, ", ")))};
  const bool has_slime = std::ranges::find(packages, "slime") != packages.end();
  if (major < 3 || (major == 3 && minor < 9)) {
    check.state = State::kNote;
    check.cure = "functions of yours need Python 3.9 or later: --plugin-python";
  } else if (!has_slime) {
    check.state = State::kNote;
    check.cure = "functions of yours need the package slime there: pip install slime-rl";
  }
  return {check};
}

Check check_sandbox() {
  const sandbox::Availability here = sandbox::availability();
  if (here.problem.empty()) {
    return {.area = "sandbox",
            .what = fmt::format("works; memory is bounded by {}", here.memory_bound)};
  }
  return {.area = "sandbox",
          .state = State::kNote,
          .what = here.problem,
          .cure = "only model-written code needs it (docs/sandbox.md)"};
}

}  // namespace slime::doctor
