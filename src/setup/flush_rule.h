#pragma once

/// Rule of --flush-cache-interval: which updates of the engines' weights abort what runs
/// (docs/decisions/0136-pipeline-rl-schedule.md).

#include <cstdint>

#include "core/sample.h"

namespace slime::setup {

/// Whether the update to `version` does. `first_version`: of the weights that this process began
/// with; the update behind it always does, and those after it keep the phase of version 1.
inline bool flushes_cache(int64_t interval, WeightVersion version, WeightVersion first_version) {
  return version == first_version + 1 || (interval > 0 && (version - 1) % interval == 0);
}

}  // namespace slime::setup
