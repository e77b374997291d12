#include "cli/doctor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/by_name.h"
#include "cli/counted.h"
#include "cli/options.h"
#include "cli/train.h"
#include "cluster/launch_environment.h"
#include "config/parse_flags.h"
#include "core/error.h"
#include "doctor/check.h"
#include "doctor/devices.h"
#include "doctor/disk.h"
#include "doctor/machine.h"
#include "doctor/network.h"
#include "doctor/programs.h"
#include "help/wrapped.h"
#include "hub/settings.h"
#include "kernels/gpu/rocm.h"
#include "loop/trial_start.h"
#include "net/http_server.h"
#include "plugin/environment.h"
#include "setup/run_devices.h"

namespace slime::cli {
namespace {

using doctor::Check;
using doctor::State;

help::Manual doctor_manual() {
  help::Manual manual = train_manual("slime doctor");
  manual.summary =
      "says whether this machine is ready; with the flags of a run, also what that run would find: "
      "model, data, functions, devices, the checkpoint to go on from. Exit code 1 where there is a "
      "problem.";
  manual.usage = {"slime doctor", "slime doctor FLAGS OF slime train"};
  manual.first = {{"Options", {"--json", "--run-dir", "--plugin-python"}}};
  manual.options.insert(manual.options.begin(),
                        {.names = {"--json"}, .meaning = "one JSON object, for programs"});
  return manual;
}

/// Prints each check as it is done: some take seconds.
class Report {
 public:
  explicit Report(bool as_json) : as_json_(as_json), style_(style_of_terminal()) {}

  void add(const Check& check) {
    if (!as_json_) print(check);
    checks_.push_back(check);
  }
  void add(const doctor::Checks& checks) {
    for (const Check& check : checks) add(check);
  }

  int end(bool has_run) const {
    const bool is_ready = !doctor::has_problem(checks_);
    if (as_json_) {
      fmt::print("{}\n",
                 json_text(json::object{{"ready", is_ready}, {"checks", to_json(checks_)}}));
    } else {
      const auto count = [&](State state) {
        return std::ranges::count(checks_, state, &Check::state);
      };
      fmt::print("\n{}; {}, {}.\n",
                 !is_ready ? "Not ready"
                 : has_run ? "The run would begin"
                           : "Ready",
                 counted(count(State::kNote), "note"), counted(count(State::kProblem), "problem"));
    }
    return is_ready ? 0 : 1;
  }

 private:
  void print(const Check& check) const {
    constexpr int kIndent = 21;
    const std::string_view word = doctor::word_of(check.state);
    const std::string_view color = check.state == State::kOk     ? "32"
                                   : check.state == State::kNote ? "33"
                                                                 : "31";
    const std::string shown = style_.has_color ? fmt::format("\x1b[{}m{:<8}\x1b[0m", color, word)
                                               : fmt::format("{:<8}", word);
    fmt::print("{} {:<11} {}\n", shown, check.area,
               help::wrapped(check.what, style_.width, kIndent, kIndent));
    if (!check.cure.empty())
      fmt::print("{:>{}}{}\n", "-> ", kIndent,
                 help::wrapped(check.cure, style_.width, kIndent, kIndent));
    std::fflush(stdout);
  }

  const bool as_json_;
  const help::Style style_;
  doctor::Checks checks_;
};

void check_machine(const config::RunConfig& config, Report& report) {
  const doctor::SystemFiles files;
  report.add(doctor::check_processor(files));
  report.add(doctor::check_devices());
  report.add(doctor::check_amd_devices(kernels::probe_rocm()));
  report.add(doctor::check_memory(files));
  report.add(doctor::check_limits());
  const std::string folder = !config.run_dir.peek().empty() ? config.run_dir.peek()
                             : !config.save.peek().empty()  ? config.save.peek()
                                                            : "runs";
  report.add(doctor::check_disk(folder));
  report.add(doctor::check_ports(net::HttpServerConfig().port));
  report.add(doctor::check_python(config.plugin_python.peek()));
  report.add(doctor::check_sandbox());
  try {
    report.add(doctor::check_hub(hub::settings_of(cluster::own_environment)));
  } catch (const ConfigError& error) {
    report.add(Check{.area = "hub", .state = State::kProblem, .what = error.what()});
  }
}

/// What the run would find, by the start that --dry-run makes.
void check_run(const std::vector<std::string>& words, Report& report) {
  config::ParsedFlags flags = config::parse_flags(words);
  flags.config.dry_run = true;
  const std::string place = setup::choose_device(flags.config);
  find_names(flags, hub::Wanted::kModel, /*may_download=*/false, "slime doctor");
  plugin::open_environment(flags);
  const loop::TrialStart start = loop::try_start(flags);
  report.add(Check{.area = "run", .what = "it would be " + place});
  for (const std::string& note : flags.warnings)
    report.add(Check{.area = "run", .state = State::kNote, .what = note});
  for (const std::string& absent : start.absent)
    report.add(Check{.area = "run",
                     .state = State::kNote,
                     .what = "not here, and needed: " + absent,
                     .cure = "what is in it was not checked"});
  for (const std::string& problem : start.problems)
    report.add(Check{.area = "run", .state = State::kProblem, .what = problem});
}

}  // namespace

int doctor(std::span<const std::string> arguments) {
  if (asks_for_manual(arguments)) throw ManualAsked{doctor_manual()};
  if (const auto words = help::words_behind_help(arguments))
    return print_answer(doctor_manual(), *words);
  std::vector<std::string> words(arguments.begin(), arguments.end());
  const bool as_json = std::erase(words, "--json") > 0;
  std::erase(words, "--dry-run");
  // A name server that is silent is not waited for long. Nothing else runs yet.
  ::setenv("RES_OPTIONS", "timeout:1 attempts:1", /*overwrite=*/0);
  Report report(as_json);
  check_machine(config::parse_flags(words).config, report);
  if (!words.empty()) check_run(words, report);
  return report.end(!words.empty());
}

}  // namespace slime::cli
