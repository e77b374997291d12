#include "view/run_metrics.h"

#include <string>
#include <vector>

#include "core/error.h"

namespace slime::view {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kPointsPerMetric = 4000;

}  // namespace

fs::path folder_of_request(RunCatalog& catalog, const net::HttpRequest& request) {
  const auto run = request.query_value("run");
  if (!run) throw ConfigError("run: is missing; GET /api/runs lists their ids");
  const auto folder = catalog.folder_of(*run);
  if (!folder) throw ConfigError("run: there is none of this id; GET /api/runs lists them");
  return *folder;
}

report::RunMetrics metrics_of_run(const fs::path& folder) {
  const fs::path file = folder / "metrics.jsonl";
  return fs::exists(file) ? report::read_metrics(file, kPointsPerMetric) : report::RunMetrics{};
}

json::object flags_of(const fs::path& folder) {
  std::vector<std::string> ignored;
  const json::object run = report::read_run_record(folder / "run.json", ignored);
  const json::object* flags = report::flags_in(run);
  return flags != nullptr ? *flags : json::object();
}

}  // namespace slime::view
