#include "cli/report.h"

#include <CLI/CLI.hpp>
#include <filesystem>
#include <fmt/format.h>

#include "view/report.h"

namespace slime::cli {

int report(std::span<const std::string> arguments) {
  CLI::App app("Writes a run directory as one HTML page: plots of its metrics and a table of its rollouts.", "slime report");
  std::filesystem::path run_dir;
  std::filesystem::path out;
  app.add_option("run_dir", run_dir, "A run directory, as in runs/NAME")->required();
  app.add_option("-o,--out", out, "Where the page goes; RUN_DIR/report.html if not given");
  std::vector<std::string> words(arguments.rbegin(), arguments.rend());
  CLI11_PARSE(app, words);
  if (out.empty()) out = run_dir / "report.html";

  const view::ReportResult result = view::write_report(run_dir, out);
  for (const std::string& problem : result.problems) fmt::print(stderr, "slime report: {}\n", problem);
  fmt::print("{}: {} steps, {} rollouts, {:.1f} MB\n", out.string(), result.num_steps, result.num_samples,
             static_cast<double>(result.page_bytes) / 1e6);
  return 0;
}

}  // namespace slime::cli
