#pragma once

/// Metrics and settings of a run, as routes read them from its folder.

#include <filesystem>
#include <optional>

#include "core/json.h"
#include "net/http_message.h"
#include "report/run_files.h"
#include "view/run_catalog.h"

namespace slime::view {

/// The folder of `run` in the query. Throws ConfigError for one that is not in the catalog.
std::filesystem::path folder_of_request(RunCatalog& catalog, const net::HttpRequest& request);

/// At most 4000 points of each; none of a run that has not begun.
report::RunMetrics metrics_of_run(const std::filesystem::path& folder);

/// Flags of run.json that differ from the defaults.
json::object flags_of(const std::filesystem::path& folder);

}  // namespace slime::view
