#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "cli/by_name.h"
#include "cli/dry_run.h"
#include "cli/run_hosts.h"
#include "cli/train.h"
#include "config/flag_records.h"
#include "config/parse_flags.h"
#include "core/json.h"
#include "plugin/environment.h"
#include "setup/run_devices.h"
#include "train/keep_freed_memory.h"

namespace slime::cli {
namespace {

bool takes(std::vector<std::string>& words, std::string_view word) {
  return std::erase(words, word) > 0;
}

}  // namespace

int train(std::span<const std::string> arguments) {
  if (std::ranges::find(arguments, "--help") != arguments.end() ||
      std::ranges::find(arguments, "-h") != arguments.end()) {
    fmt::print(
        "slime train: reinforcement learning (or supervised training) of a model directory.\n\n"
        "  slime train --hf-checkpoint DIR --prompt-data FILE.jsonl --rm-type math ...\n"
        "  slime train --config run.yaml\n"
        "  slime train FLAGS --dry-run          what a run would do with them; --json: for "
        "programs\n"
        "  slime train --help-markdown          this as Markdown; --help-json: for programs\n{}",
        config::flag_help());
    return 0;
  }
  if (std::ranges::find(arguments, "--help-markdown") != arguments.end()) {
    fmt::print("{}", config::flag_markdown());
    return 0;
  }
  if (std::ranges::find(arguments, "--help-json") != arguments.end()) {
    fmt::print("{}\n", json_text(config::flag_records()));
    return 0;
  }
  std::vector<std::string> words(arguments.begin(), arguments.end());
  const bool tries = std::ranges::find(words, "--dry-run") != words.end();
  const DryRunReader reader =
      tries && takes(words, "--json") ? DryRunReader::kProgram : DryRunReader::kPerson;
  config::ParsedFlags flags = config::parse_flags(words);
  const bool is_chosen_here = flags.config.device.peek() == "auto";
  const std::string place = setup::choose_device(flags.config);
  find_names(flags, hub::Wanted::kModel, !flags.config.dry_run.peek(), "slime train");
  plugin::open_environment(flags);
  if (flags.config.dry_run) return dry_run(flags, place, reader);
  fmt::print(stderr, "slime train: {}\n", place);
  if (flags.config.device.peek() == "cpu") train::keep_freed_memory();
  // Whoever starts the command again, on other hosts, has the same choice.
  if (is_chosen_here) words.insert(words.end(), {"--device", flags.config.device.peek()});
  return train_on_hosts(flags, words);
}

int train_async(std::span<const std::string> arguments) {
  std::vector<std::string> words(arguments.begin(), arguments.end());
  words.emplace_back("--train-async");
  return train(words);
}

}  // namespace slime::cli
