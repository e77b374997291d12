#pragma once

/// Row of a run's metrics.jsonl: {"step": 3, "time": 1765432100.2, "train/loss": 0.5, ...}

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/json.h"

namespace slime::report {

/// Up to it a page's numbers are exact, and differences of steps cannot overflow.
inline constexpr int64_t kLargestStep = int64_t{1} << 53;

/// A line's object; nothing for one that is torn or somebody else's.
std::optional<json::object> read_metric_row(std::string_view line);

/// The row's step; nothing where it has none that a run can have: a whole number from 0 to kLargestStep.
std::optional<int64_t> step_of_row(const json::object& row);

}  // namespace slime::report
