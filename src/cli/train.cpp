#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "cli/dry_run.h"
#include "cli/run_hosts.h"
#include "cli/train.h"
#include "config/parse_flags.h"
#include "train/keep_freed_memory.h"

namespace slime::cli {

int train(std::span<const std::string> arguments) {
  if (std::ranges::find(arguments, "--help") != arguments.end()) {
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
  if (flags.config.dry_run) return dry_run(flags);
  if (flags.config.device == "cpu") train::keep_freed_memory();
  return train_on_hosts(flags, arguments);
}

int train_async(std::span<const std::string> arguments) {
  std::vector<std::string> words(arguments.begin(), arguments.end());
  words.emplace_back("--train-async");
  return train(words);
}

}  // namespace slime::cli
