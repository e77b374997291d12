#include "cli/steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <optional>
#include <system_error>
#include <vector>

#include "cli/by_name.h"
#include "cli/options.h"
#include "cli/train.h"
#include "cluster/launch_environment.h"
#include "cluster/parent_watch.h"
#include "cluster/run_identity.h"
#include "config/parse_flags.h"
#include "config/unread_flags.h"
#include "config/validate.h"
#include "core/clock.h"
#include "core/error.h"
#include "loop/restarts.h"
#include "loop/translations.h"
#include "loop/verb_door.h"
#include "loop/verb_run.h"
#include "plugin/environment.h"
#include "report/run_folder.h"
#include "setup/run_devices.h"
#include "train/keep_freed_memory.h"

namespace slime::cli {
namespace {

constexpr const char* kHelp =
    "slime steps: a run of `slime train` whose loop is a script's (Python: slime.start, "
    "docs/python.md).\n\n"
    "  slime steps --door DIR [--share-weights | --built-in-loop] FLAGS OF slime train\n\n"
    "  --door DIR        a directory of yours, mode 0700: door.json in it says address and token\n"
    "  --share-weights   engines that take turns with the trainer read its weights: less memory, "
    "and\n"
    "                    no generation between training and update_weights\n"
    "  --built-in-loop   the loop of `slime train`; door.json says where the run's folder is\n\n"
    "It ends when its standard input is closed, or whoever started it has ended.\n";

/// Of this command; the rest are flags of the run.
struct StepsOptions {
  std::filesystem::path door;
  bool shares_weights = false;
  bool has_built_in_loop = false;
  std::vector<std::string> flags;
};

StepsOptions parse_steps(std::span<const std::string> arguments) {
  StepsOptions options;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--share-weights") {
      options.shares_weights = true;
    } else if (arguments[i] == "--built-in-loop") {
      options.has_built_in_loop = true;
    } else if (arguments[i] == "--door" && i + 1 < arguments.size()) {
      options.door = arguments[++i];
    } else {
      options.flags.push_back(arguments[i]);
    }
  }
  if (options.door.empty())
    throw ConfigError("--door DIR is missing; it is a script that starts this (docs/python.md)");
  return options;
}

void refuse_hosts(const config::RunConfig& config) {
  const bool looks = config.launcher != "local";
  const auto place = looks ? cluster::launch_place(cluster::own_environment) : std::nullopt;
  if (place || config.actor_num_nodes > 1) {
    throw ConfigError(
        fmt::format("{}: a loop in Python drives a run on one host; use slime train for several",
                    place ? "started by " + place->launcher
                          : fmt::format("--actor-num-nodes {}", config.actor_num_nodes)));
  }
}

int run_loop_of(const StepsOptions& options, const config::ParsedFlags& flags) {
  const SystemClock clock;
  if (!options.has_built_in_loop) {
    return loop::run_on_this_host(flags, clock, [&options](loop::Stations& run) {
      return loop::run_by_verbs(run, options.door);
    });
  }
  const auto folder = report::RunFolder::only_named(flags.config).root();
  loop::write_door(options.door, {{"run_dir", std::filesystem::absolute(folder).string()}});
  return loop::run_on_this_host(flags, clock);
}

int drive(const StepsOptions& options) {
  config::ParsedFlags flags = config::parse_flags(options.flags);
  const std::string place = setup::choose_device(flags.config);
  if (flags.config.dry_run)
    throw ConfigError("--dry-run: is a flag of slime train, which looks at the same flags");
  fmt::print(stderr, "slime steps: {}\n", place);
  find_names(flags, hub::Wanted::kModel, /*may_download=*/true, "slime steps");
  plugin::open_environment(flags);
  if (flags.config.device.peek() == "cpu") train::keep_freed_memory();
  refuse_hosts(flags.config);
  flags.config.keeps_engine_weights = !options.shares_weights && !options.has_built_in_loop &&
                                      !flags.config.debug_rollout_only.peek();
  config::complete_and_validate(flags);
  loop::make_translations(flags.config, loop::model_if_here(flags.config).get());
  config::note_unread_flags(flags);
  cluster::take_identity_from_environment();
  const int exit_code = run_loop_of(options, flags);
  if (const std::string line = config::still_unread(flags); !line.empty())
    fmt::print(stderr, "{}\n", line);
  return exit_code;
}

}  // namespace

int steps(std::span<const std::string> arguments) {
  if (const auto words = help::words_behind_help(arguments)) {
    if (!words->empty()) return print_answer(train_manual("slime steps"), *words);
    fmt::print("{}", kHelp);
    return 0;
  }
  const StepsOptions options = parse_steps(arguments);
  loop::require_private_folder(options.door);
  // What the script did not save is done again: it cannot know of a checkpoint that comes after it.
  const cluster::ParentWatch watch([&options] {
    std::fputs("slime steps: the script that drives this run has ended\n", stderr);
    std::error_code ignored;
    std::filesystem::remove(options.door / "door.json", ignored);
    std::filesystem::remove(options.door, ignored);
    std::_Exit(1);
  });
  try {
    return drive(options);
  } catch (const std::exception& error) {
    loop::write_last_words(options.door, error.what());
    throw;
  }
}

}  // namespace slime::cli
