#include "cli/train_adapters.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "cli/by_name.h"
#include "cluster/launch_environment.h"
#include "cluster/run_identity.h"
#include "config/adapter_words.h"
#include "config/unread_flags.h"
#include "config/validate.h"
#include "core/clock.h"
#include "core/error.h"
#include "loop/adapter_runs.h"
#include "loop/translations.h"
#include "loop/trial_start.h"
#include "plugin/environment.h"
#include "setup/run_devices.h"
#include "train/keep_freed_memory.h"

namespace slime::cli {
namespace {

void say(const std::string& line) {
  fmt::print(stderr, "{}\n", line);
  std::fflush(stderr);
}

void check_place(const config::RunConfig& config) {
  if (config.run_dir.peek().empty())
    throw ConfigError("--adapter: needs --run-dir, in which each adapter has a folder of its name");
  if (config.launcher.peek() == "local") return;
  if (const auto place = cluster::launch_place(cluster::own_environment)) {
    throw ConfigError(
        fmt::format("--adapter: the base is in one process so far, and {} has started several; "
                    "--launcher local begins in this process alone",
                    place->launcher));
  }
}

/// One of the runs, not complete yet, and where it would be (`place`).
config::ParsedFlags read_run(const config::AdapterWords& own, bool is_tried, std::string& place) {
  config::ParsedFlags run = config::parse_flags(own.words);
  run.config.adapter = std::vector<std::string>();  // also where a file of flags says it
  std::erase(run.given, "--adapter");
  run.config.adapter_name = own.name;
  place = setup::choose_device(run.config);
  find_names(run, hub::Wanted::kModel, !is_tried, "slime train");
  plugin::open_environment(run);
  return run;
}

/// What --dry-run finds, before anything of any run is there.
void check_start(config::ParsedFlags run) {
  loop::TrialStart start = loop::try_start(run);
  start.problems.insert(start.problems.end(), start.absent.begin(), start.absent.end());
  if (!start.problems.empty()) throw ConfigError(start.problems);
}

config::ParsedFlags complete_run(const config::AdapterWords& own, std::string& place) {
  config::ParsedFlags run = read_run(own, /*is_tried=*/false, place);
  check_start(run);
  config::complete_and_validate(run);
  loop::make_translations(run.config, loop::model_if_here(run.config).get());
  config::note_unread_flags(run);
  return run;
}

/// What is wrong with each is said at once.
std::vector<config::ParsedFlags> complete_runs(const std::vector<config::AdapterWords>& adapters) {
  std::vector<config::ParsedFlags> runs;
  std::vector<std::string> problems;
  std::string place;
  for (const config::AdapterWords& own : adapters) {
    try {
      config::in_words_of_adapter(own.name, [&] { runs.push_back(complete_run(own, place)); });
    } catch (const ConfigError& error) {
      problems.emplace_back(error.what());
    }
  }
  if (!problems.empty()) throw ConfigError(problems);
  config::check_written_places(runs);
  say("slime train: " + place);
  return runs;
}

int try_adapters(const std::vector<config::AdapterWords>& adapters, DryRunReader reader) {
  int exit_code = 0;
  for (const config::AdapterWords& own : adapters) {
    std::string place;
    config::ParsedFlags run;
    config::in_words_of_adapter(own.name, [&] { run = read_run(own, /*is_tried=*/true, place); });
    if (reader == DryRunReader::kPerson) fmt::print("adapter {}\n", own.name);
    exit_code = std::max(exit_code, dry_run(run, place, reader));
  }
  return exit_code;
}

}  // namespace

int train_adapters(const config::ParsedFlags& flags, std::span<const std::string> arguments,
                   DryRunReader reader) {
  check_place(flags.config);
  const std::vector<config::AdapterWords> adapters =
      config::adapter_words(arguments, flags.config.adapter.peek(), flags.config.run_dir.peek());
  if (flags.config.dry_run.peek()) return try_adapters(adapters, reader);
  const std::vector<config::ParsedFlags> runs = complete_runs(adapters);
  cluster::take_identity_from_environment();  // what users' functions start has no part in any run
  if (runs.front().config.device.peek() == "cpu") train::keep_freed_memory();
  const SystemClock clock;
  const int exit_code = loop::run_adapters(runs, clock);
  for (const config::ParsedFlags& run : runs) {
    if (const std::string line = config::still_unread(run); !line.empty())
      say(run.config.adapter_name + ": " + line);
  }
  return exit_code;
}

}  // namespace slime::cli
