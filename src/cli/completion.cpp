#include "cli/completion.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/options.h"
#include "cli/train.h"
#include "help/completion.h"

namespace slime::cli {

namespace {

help::Manual with_run_flags(const Command& command) {
  help::Manual manual = manual_of(command);
  if (!manual.takes_run_flags) return manual;
  for (help::Option& option : train_manual(manual.command).options)
    if (manual.find(option.names[0]) == nullptr) manual.options.push_back(std::move(option));
  return manual;
}

}  // namespace

int completion(std::span<const std::string> arguments) {
  std::string shell;
  CLI::App app(
      "Prints a script that lets the Tab key know this program's commands, options, their words, "
      "runs of this folder, and models in the cache of Hugging Face. For a shell: "
      "`source <(slime completion bash)`, the same with zsh behind compinit; "
      "`slime completion fish | source`. The same line in ~/.bashrc, ~/.zshrc or "
      "~/.config/fish/config.fish is for all shells to come (docs/cli.md).",
      "slime completion");
  app.add_option("SHELL", shell, "whose script")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  if (const auto exit_code = parse_options(app, arguments)) return *exit_code;
  std::vector<help::CompletedVerb> completed;
  for (const help::Verb& verb : verbs()) {
    for (const Command& command : commands())
      if (verb.name == command.name) completed.push_back({verb, with_run_flags(command)});
  }
  fmt::print("{}", help::completion_script(shell, completed).value());
  return 0;
}

}  // namespace slime::cli
