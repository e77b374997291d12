#pragma once

/// RUN_DIR/timeline.jsonl (report/timeline.h) for the report: each lane's shares over the whole run in
/// bins, and the last lines phase by phase. Read with forgiveness, like all of a run directory, and
/// of bounded size however long the file is.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/json.h"

namespace slime::report {

struct TimelineLimits {
  std::size_t bins = 240;
  /// Lines shown phase by phase: the last ones, as long as they have no more phases than this.
  std::size_t spans = 400;
  double window_seconds = 600;
};

/// {"seconds": of all lines, "steps": [first, last], "lanes": [{"name": "engine",
/// "phases": [{"name": "generate", "seconds": 5.1, "bins": [share of each bin, ...]}]}],
/// "window": {"seconds", "steps", "lanes": [{"name", "spans": [[phase index, begin, seconds], ...]}]}}
/// with time counted through the lines, so pauses between two processes of a run are left out. An
/// empty object without a file.
json::object timeline_json(const std::filesystem::path& path, const TimelineLimits& limits,
                           std::vector<std::string>& problems);

}  // namespace slime::report
