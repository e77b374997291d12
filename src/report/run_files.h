#pragma once

/// Reader of a run directory that tolerates damage: a run may be going on, may have died in the
/// middle of a line, may have been written by hand. What cannot be read is named in `problems` and
/// left out; nothing here throws for it.
///
///   RUN_DIR/run.json            {"model": ..., "flags": {...}, ...}; may be missing
///   RUN_DIR/timeline.jsonl      who did what when (report/run_timeline.h); may be missing
///   RUN_DIR/metrics.jsonl       one line per step: {"step": 3, "time": 1765432100.2, "train/loss":
///   0.5, ...} RUN_DIR/rollouts/*.jsonl    one file per step, named by it: samples (core/sample.h)
///   with "train_log_probs" and
///                               "token_texts" beside their own fields

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"

namespace slime::report {

/// One metric over the run. Values are NaN where the file has null.
struct MetricSeries {
  std::vector<int64_t> steps;
  std::vector<double> values;
};

struct RunMetrics {
  std::map<std::string, MetricSeries> series;
  MetricSeries times;     // unix seconds of the last row of each step that has one
  int64_t num_steps = 0;  // the largest step + 1
  double first_time = 0;  // unix seconds; 0 without metrics
  double last_time = 0;
  std::vector<std::string> problems;
};

/// Reads metrics.jsonl. Where two lines give the same metric for one step the later one counts. A
/// series longer than `max_points` is thinned evenly, its last point kept.
RunMetrics read_metrics(const std::filesystem::path& path, std::size_t max_points);

/// A rollout file and the step in its name: the last number there, as in rollout_000012.jsonl.
struct RolloutFile {
  std::filesystem::path path;
  int64_t step = 0;
  uint64_t size_bytes = 0;
};

/// Those of a folder, by step. A folder that is not there has none.
std::vector<RolloutFile> rollout_files(const std::filesystem::path& folder);

/// Calls `use` for each line that is a JSON object. Others are reported with file and line, the
/// first few one by one.
void for_each_json_line(const std::filesystem::path& path, std::vector<std::string>& problems,
                        const std::function<void(const json::object&)>& use);

/// run.json, or an empty object.
json::object read_run_record(const std::filesystem::path& path, std::vector<std::string>& problems);

/// The flags in a run.json; null if it has none.
const json::object* flags_in(const json::object& run);
/// A flag's value in a run.json; empty if it is not given or not a string.
std::string text_flag(const json::object& run, std::string_view name);

}  // namespace slime::report
