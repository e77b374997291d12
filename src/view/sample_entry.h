#pragma once

/// Index entry of a sample: what tables filter and sort by, and where its line is in the rollout file.

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/sample.h"

namespace slime::view {

struct SampleEntry {
  uint64_t offset = 0;  // of its line in the file
  int64_t group = 0;
  uint32_t bytes = 0;   // of the line, without its end
  uint32_t length = 0;  // tokens of the response
  float reward = 0;     // NaN: none
  /// Largest difference of a trained token's log-prob between engine and trainer; NaN: not known.
  float difference = 0;
  int32_t oldest_version = -1;  // of the weights that made its tokens; -1: not known
  int32_t newest_version = -1;
  uint32_t index_in_group = 0;
  Status status = Status::kPending;
  bool is_removed = false;        // counted, not trained
  bool is_in_dead_group = false;  // all rewards of its group are equal

  bool has_reward() const { return reward == reward; }
  bool has_difference() const { return difference == difference; }
};

/// Reads a line of a rollout file without keeping texts or tokens. `reward_key`: as
/// report/report_rollouts.h has it. Nothing for a line that is no JSON object.
std::optional<SampleEntry> read_entry(std::string_view line, std::string_view reward_key);

}  // namespace slime::view
