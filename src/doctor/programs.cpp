#include "doctor/programs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include "core/child_process.h"
#include "core/error.h"
#include "core/expected.h"
#include "core/json.h"
#include "plugin/host_process.h"
#include "sandbox/sandbox.h"

namespace slime::doctor {
namespace {

constexpr std::chrono::seconds kPythonPatience{10};
constexpr const char* kSomethingElse = "prints something else than it was asked for";

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

/// Standard output of the script, or what is wrong with the interpreter.
Expected<std::string> answer_of(const std::string& python) {
  const ChildEnd end = run_child({.words = {python, "-c", kScript},
                                  .is_on_path = true,
                                  .environment = plugin::python_environment(),
                                  .patience = kPythonPatience,
                                  .error_log = "/dev/null"});
  switch (end.how) {
    case ChildEnd::How::kNotStarted:
      return failure(std::strerror(end.number));
    case ChildEnd::How::kTimedOut:
      return failure(fmt::format("gave no answer in {} s", kPythonPatience.count()));
    case ChildEnd::How::kPrintedTooMuch:
      return failure(kSomethingElse);
    default:
      break;
  }
  if (!end.is_success()) return failure("ended with an error");
  return end.text;
}

}  // namespace

Checks check_python(const std::string& python) {
  const Expected<std::string> answer = answer_of(python);
  const std::string cure =
      "only functions of yours, wandb and files of other systems need it: install python3, or name "
      "one with --plugin-python";
  const auto note = [&](std::string why) {
    return Checks{{.area = "python",
                   .state = State::kNote,
                   .what = fmt::format("{}: {}", python, why),
                   .cure = cure}};
  };
  if (!answer) return note(answer.error().message);
  json::value said;
  try {
    said = parse_json(*answer, python);
  } catch (const ConfigError&) {
    return note(kSomethingElse);
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
