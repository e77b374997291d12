#pragma once

/// The growing end of a run's metrics.jsonl: whole rows that came since a position.
///
/// A position says where a reader is, and of which text: "8131.5c0ffee1" is a byte offset and a checksum
/// of what stands before it. A run that went back to a checkpoint has another text there, and the reader
/// begins again.

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "core/json.h"

namespace slime::view {

/// The position behind the last whole row; "0" without a file.
std::string tail_position(const std::filesystem::path& metrics);

struct TailRows {
  json::array
      rows;  // objects with a step (report/metric_row.h); strings and nested values left out
  std::string position;   // behind them
  bool is_reset = false;  // the text before the position is not what it was: begin again
};

/// At most about `limit_bytes` of rows, so a reader far behind comes in several calls.
TailRows rows_since(const std::filesystem::path& metrics, std::string_view position,
                    std::size_t limit_bytes = std::size_t{1} << 20);

}  // namespace slime::view
