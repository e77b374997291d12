#pragma once

/// Weight versions of a response's tokens: runs of equal versions, in token order. They add up to
/// the response. Tokens that no weights made (a tool's answer) are runs of kNoVersion.
///
///   {{5, 3}, {kNoVersion, 2}, {6, 1}}   three tokens of version 5, a tool's two, one of version 6

#include <cstdint>
#include <span>
#include <vector>

#include "core/sample.h"

namespace slime {

inline constexpr WeightVersion kNoVersion = -1;

/// Appends `run`, to the last one if it is of the same version.
inline void append_run(std::vector<VersionRun>& runs, const VersionRun& run) {
  if (run.num_tokens == 0) return;
  if (!runs.empty() && runs.back().version == run.version) {
    runs.back().num_tokens += run.num_tokens;
  } else {
    runs.push_back(run);
  }
}

inline int64_t num_tokens(std::span<const VersionRun> runs) {
  int64_t sum = 0;
  for (const VersionRun& run : runs) sum += run.num_tokens;
  return sum;
}

}  // namespace slime
