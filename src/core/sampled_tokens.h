#pragma once

/// Count of a group's response tokens that an engine sampled.

#include <cstdint>

#include "core/sample.h"

namespace slime {

/// Those with a log-prob. None in rows of a data set.
inline int64_t num_sampled_tokens(const Group& group) {
  int64_t num_tokens = 0;
  for (const Sample& sample : group.samples)
    num_tokens += static_cast<int64_t>(sample.log_probs.size());
  return num_tokens;
}

}  // namespace slime
