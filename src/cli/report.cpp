#include "cli/report.h"

#include <fmt/format.h>

#include <filesystem>

#include "cli/options.h"
#include "report/report.h"

namespace slime::cli {

int report(std::span<const std::string> arguments) {
  std::filesystem::path run_dir;
  std::filesystem::path out;
  CLI::App app(
      "Writes a run directory as one HTML page: plots of its metrics, a table of its rollouts.",
      "slime report");
  app.add_option("RUN_DIR", run_dir, "a run directory, as in runs/NAME")->required();
  app.add_option("-o,--out", out, "where the page goes (default: RUN_DIR/report.html)");
  if (const auto exit_code = parse_options(app, arguments)) return *exit_code;
  if (out.empty()) out = run_dir / "report.html";

  const report::ReportResult result = report::write_report(run_dir, out);
  for (const std::string& problem : result.problems)
    fmt::print(stderr, "slime report: {}\n", problem);
  fmt::print("{}: {} steps, {} rollouts, {:.1f} MB\n", out.string(), result.num_steps,
             result.num_samples, static_cast<double>(result.page_bytes) / 1e6);
  return 0;
}

}  // namespace slime::cli
