#include "cli/runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "cli/options.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/json_lines.h"
#include "report/run_list.h"
#include "report/terminal.h"

namespace slime::cli {

int runs(std::span<const std::string> arguments) {
  namespace fs = std::filesystem;
  std::vector<fs::path> folders;
  std::string key = "age";
  bool as_json = false;
  CLI::App app(
      "The runs of folders: state, last step, mean reward of that step (a supervised run: its "
      "loss), what differs in their settings, and the branches of each; * is the branch that goes "
      "on without --load.",
      "slime runs");
  app.add_option(
      "FOLDER", folders,
      "run directories, or folders with runs at most three folders below; default: runs, "
      "or the current one");
  app.add_option("--sort", key,
                 "age (the newest last), name, state, step, or reward (the highest last)")
      ->check(CLI::IsMember({"age", "name", "state", "step", "reward"}))
      ->capture_default_str();
  app.add_flag("--json", as_json, "one JSON array");
  if (const auto exit_code = parse_options(app, arguments)) return *exit_code;
  if (folders.empty()) folders.emplace_back(fs::is_directory("runs") ? "runs" : ".");
  std::vector<std::string> problems;
  for (const fs::path& folder : folders)
    if (!fs::is_directory(folder))
      problems.push_back(fmt::format("{}: there is no such folder", folder.string()));
  if (!problems.empty()) throw ConfigError(problems);
  std::vector<report::ListedRun> listed = report::list_runs(folders);
  report::sort_runs(listed, key);
  if (as_json) {
    write_json_line(report::to_json(listed));
    return 0;
  }
  if (listed.empty()) {
    for (const fs::path& folder : folders)
      fmt::print("{}: holds no run (a folder with run.json)\n", folder.string());
    return 0;
  }
  constexpr int kWidest = 200;
  const report::Terminal terminal = report::detect_terminal();
  const SystemClock clock;
  fmt::print("{}", report::table_of_runs(listed, std::min(report::terminal_width(), kWidest),
                                         terminal.has_color, clock.unix_seconds()));
  return 0;
}

}  // namespace slime::cli
