#pragma once

/// How one response is drawn.

#include <cstdint>
#include <optional>

#include "engine/client.h"

namespace slime::rollout {

struct ResponseRules {
  engine::SamplingParams sampling;            // max_new_tokens is the limit of the whole response
  std::optional<int64_t> max_context_length;  // prompt and response together
  uint64_t seed = 0;                          // draws are keyed by (seed, sample ordinal)
  bool keeps_top_p_ids = false;  // record the nucleus of each token, for the trainer's replay
};

}  // namespace slime::rollout
