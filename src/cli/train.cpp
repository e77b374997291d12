#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/by_name.h"
#include "cli/dry_run.h"
#include "cli/options.h"
#include "cli/run_hosts.h"
#include "cli/train.h"
#include "cli/train_adapters.h"
#include "config/flag_records.h"
#include "config/parse_flags.h"
#include "core/json.h"
#include "help/run_flags.h"
#include "plugin/environment.h"
#include "setup/run_devices.h"
#include "train/keep_freed_memory.h"

namespace slime::cli {
namespace {

bool has(std::span<const std::string> words, std::string_view word) {
  return std::ranges::find(words, word) != words.end();
}

/// What is asked about the flags and needs no run.
std::optional<int> answer_about_flags(const std::string& command,
                                      std::span<const std::string> arguments) {
  if (const auto words = help::words_behind_help(arguments))
    return print_answer(train_manual(command), *words);
  if (has(arguments, "--help-markdown")) {
    fmt::print("{}", config::flag_markdown());
    return 0;
  }
  if (asks_for_manual(arguments)) {
    fmt::print("{}\n", json_text(config::flag_records()));
    return 0;
  }
  return std::nullopt;
}

int train_as(const std::string& command, std::vector<std::string> words) {
  if (const auto exit_code = answer_about_flags(command, words)) return *exit_code;
  if (command == "slime train-async") words.emplace_back("--train-async");
  const bool tries = has(words, "--dry-run");
  const DryRunReader reader =
      tries && std::erase(words, "--json") > 0 ? DryRunReader::kProgram : DryRunReader::kPerson;
  config::ParsedFlags flags = config::parse_flags(words);
  if (!flags.config.adapter.peek().empty()) return train_adapters(flags, words, reader);
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

}  // namespace

help::Manual train_manual(const std::string& command) {
  return help::run_manual(
      command,
      command == "slime train"
          ? "generates responses with a model, scores them, and trains it on them."
          : "slime train, with generation and training at the same time.",
      {command +
           " --hf-checkpoint Qwen/Qwen3-0.6B --prompt-data openai/gsm8k:train --rm-type gsm8k ...",
       command + " --config run.yaml",
       command + " FLAGS --dry-run: what a run would do with them (--json: for programs)"});
}

int train(std::span<const std::string> arguments) {
  return train_as("slime train", {arguments.begin(), arguments.end()});
}

int train_async(std::span<const std::string> arguments) {
  return train_as("slime train-async", {arguments.begin(), arguments.end()});
}

}  // namespace slime::cli
