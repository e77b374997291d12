#pragma once

/// HTTP routes of a page that shows runs as they grow: `slime view`. All of them read; none writes.
///
///   GET /                       the page; its files are /page/NAME (src/report/page)
///   GET /api/runs               [{"id": ..., "state": "running", "flags": {...}, ...}]
///   GET /api/metrics?run=ID     series of a run, and the position behind them
///   GET /api/timeline?run=ID    who did what when (report/run_timeline.h)
///   GET /api/events?after=ID:POSITION,...   server-sent events: "rows" of metrics that came since, "reset"
///                               where a run's metrics were written anew, "runs" when the list changes
///
/// Answers carry a Content-Security-Policy without inline scripts and styles. A request whose Origin is
/// another page, of this machine or not, is refused.

#include <string_view>
#include <vector>

#include "net/http_exchange.h"
#include "view/run_catalog.h"
#include "view/sample_routes.h"

namespace slime::view {

/// `catalog` and `store` outlive the routes. Routes of samples: view/sample_routes.h.
std::vector<net::HttpRoute> view_routes(RunCatalog& catalog, SampleStore& store);

}  // namespace slime::view
