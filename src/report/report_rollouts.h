#pragma once

/// The rollouts of a run as the report's page wants them: one JSON object per sample, short names
/// spelt out in report_rollouts.cpp, and not more of them than fit.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "report/run_files.h"

namespace slime::report {

struct SampledRollouts {
  std::string json;         // "{...},{...}": the elements of an array
  int64_t num_samples = 0;  // in it
};

/// Each file may use a share of `limit_bytes` that is proportional to its size. Where that is too
/// little it keeps whole groups, evenly spaced; that is said in `problems`. One file is in memory
/// at a time.
SampledRollouts sample_rollouts(const std::vector<RolloutFile>& files, uint64_t limit_bytes,
                                std::string_view reward_key, std::vector<std::string>& problems);

/// One sample for the page. `line` is a line of a rollout file: fields that are missing or of
/// another type are left out.
json::object page_sample(const json::object& line, int64_t step, std::string_view reward_key);

}  // namespace slime::report
