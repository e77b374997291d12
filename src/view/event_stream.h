#pragma once

/// The stream of /api/events: rows of metrics as they are written, and changes of the list of runs.

#include <chrono>

#include "net/http_exchange.h"
#include "view/run_catalog.h"

namespace slime::view {

/// Polling interval of the files.
inline constexpr std::chrono::milliseconds kLookInterval{500};
/// Runs of one stream.
inline constexpr std::size_t kMostFollowed = 64;

/// `after` of the query: "ID:POSITION,ID:POSITION" (view/metric_tail.h). `catalog` outlives the stream.
net::Task<void> stream_events(RunCatalog& catalog, net::HttpExchange& exchange);

}  // namespace slime::view
