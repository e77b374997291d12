#include "cli/dry_run.h"

#include <fmt/format.h>

#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/counted.h"
#include "config/eval_config.h"
#include "core/error.h"
#include "core/json.h"
#include "loop/trial_start.h"

namespace slime::cli {
namespace {

void print(std::string_view title, const std::vector<std::string>& sentences) {
  if (sentences.empty()) return;
  fmt::print("\n{}\n", title);
  for (const std::string& sentence : sentences) {
    std::istringstream lines(sentence);
    for (std::string line; std::getline(lines, line);) fmt::print("  {}\n", line);
  }
}

std::string_view command_of(const config::RunConfig& config) {
  return config.train_async ? "slime train-async" : "slime train";
}

json::array to_array(const std::vector<std::string>& sentences) {
  return json::array(sentences.begin(), sentences.end());
}

json::object users_arguments(const config::ParsedFlags& flags) {
  json::object arguments = flags.unknown;
  for (const auto& flag : config::flags_for_users(flags.config))
    arguments[flag.key()] = flag.value();
  json::array sets;
  try {
    if (flags.config.eval_interval)
      for (json::object& set : config::eval_set_records(flags.config))
        sets.push_back(std::move(set));
  } catch (const ConfigError&) {
    sets.clear();  // among the refusals, or a file that is not here
  }
  arguments["eval_datasets"] = std::move(sets);
  return arguments;
}

void print_json(const config::ParsedFlags& flags, const loop::TrialStart& start,
                const std::string& place) {
  const json::object said{
      {"command", command_of(flags.config)}, {"place", place},
      {"begins", start.problems.empty()},    {"notes", to_array(flags.warnings)},
      {"not_here", to_array(start.absent)},  {"refusals", to_array(start.problems)},
      {"args", users_arguments(flags)}};
  fmt::print("{}\n", json_text(said));
}

}  // namespace

int dry_run(config::ParsedFlags& flags, const std::string& place, DryRunReader reader) {
  const loop::TrialStart start = loop::try_start(flags);
  if (reader == DryRunReader::kProgram) {
    print_json(flags, start, place);
    return start.problems.empty() ? 0 : 2;
  }
  fmt::print("{} --dry-run: {}, {}, {} not here, {}\n", command_of(flags.config),
             counted(flags.given.size() - 1, "flag"), counted(flags.warnings.size(), "note"),
             counted(start.absent.size(), "path"), counted(start.problems.size(), "refusal"));
  // A login node has no GPU; a run on others is checked all the same.
  const bool is_chosen = place.find("--device auto") != std::string::npos;
  fmt::print("Here it would be {}.{}\n", place,
             is_chosen && flags.config.device.peek() == "cpu"
                 ? " To check a run on GPUs: --dry-run --device cuda."
                 : "");
  print("Notes:", flags.warnings);
  print("Not on this machine; a run needs them, and what is in them was not checked:",
        start.absent);
  print("A run would refuse:", start.problems);
  fmt::print("\nA run would {}. Nothing was loaded or written{}.\n",
             !start.problems.empty() ? "not begin"
             : start.absent.empty()  ? "begin"
                                     : "begin where these paths are",
             start.imported_functions ? "; functions of yours were imported" : "");
  return start.problems.empty() ? 0 : 2;
}

}  // namespace slime::cli
