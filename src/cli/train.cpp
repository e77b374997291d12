#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "cli/dry_run.h"
#include "cli/run_hosts.h"
#include "cli/train.h"
#include "config/parse_flags.h"
#include "setup/run_devices.h"
#include "train/keep_freed_memory.h"

namespace slime::cli {

int train(std::span<const std::string> arguments) {
  if (std::ranges::find(arguments, "--help") != arguments.end() ||
      std::ranges::find(arguments, "-h") != arguments.end()) {
    fmt::print(
        "slime train: reinforcement learning (or supervised training) of a model directory.\n\n"
        "  slime train --hf-checkpoint DIR --prompt-data FILE.jsonl --rm-type math ...\n"
        "  slime train --config run.yaml\n{}",
        config::flag_help());
    return 0;
  }
  if (std::ranges::find(arguments, "--help-markdown") != arguments.end()) {
    fmt::print("{}", config::flag_markdown());
    return 0;
  }
  config::ParsedFlags flags = config::parse_flags(arguments);
  const bool is_chosen_here = flags.config.device.peek() == "auto";
  const std::string place = setup::choose_device(flags.config);
  if (flags.config.dry_run) return dry_run(flags, place);
  fmt::print(stderr, "slime train: {}\n", place);
  if (flags.config.device.peek() == "cpu") train::keep_freed_memory();
  // Whoever starts the command again, on other hosts, has the same choice.
  std::vector<std::string> words(arguments.begin(), arguments.end());
  if (is_chosen_here) words.insert(words.end(), {"--device", flags.config.device.peek()});
  return train_on_hosts(flags, words);
}

int train_async(std::span<const std::string> arguments) {
  std::vector<std::string> words(arguments.begin(), arguments.end());
  words.emplace_back("--train-async");
  return train(words);
}

}  // namespace slime::cli
