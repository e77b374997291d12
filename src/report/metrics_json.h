#pragma once

/// Series of a run's metrics as the page's JavaScript reads them.

#include "core/json.h"
#include "report/run_files.h"

namespace slime::report {

/// {"train/loss": {"steps": [0, 1], "values": [0.5, null]}, ...}. Steps without the metric become a null,
/// where a plot's line ends. Evaluations are joined: how far apart they are may change.
json::object metrics_json(const RunMetrics& metrics);

/// The same of one series.
json::object series_json(const MetricSeries& series, bool is_joined);

/// A number, or null where it is none: JSON has no NaN.
json::value finite_json(double value);

}  // namespace slime::report
