#pragma once

/// Counts of the drafts that an engine verified, of a response or of many.

#include <cstdint>

namespace slime {

struct DraftCounts {
  int64_t num_drafted = 0;
  int64_t num_kept = 0;   // that were what the model drew itself
  int64_t num_steps = 0;  // that drew tokens, with and without drafts

  DraftCounts& operator+=(const DraftCounts& other) {
    num_drafted += other.num_drafted;
    num_kept += other.num_kept;
    num_steps += other.num_steps;
    return *this;
  }
  friend bool operator==(const DraftCounts&, const DraftCounts&) = default;
};

}  // namespace slime
