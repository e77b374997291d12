#pragma once

/// The moment between two steps, kept while the next one is collected: what a checkpoint of the
/// steps before it needs when that one comes to no end.

#include <cstdint>

#include "buffer/data_source.h"
#include "loop/outcome_log.h"
#include "rollout/rollout.h"

namespace slime::loop {

struct StepBoundary {
  buffer::DataSource prompts;  // a copy
  OutcomeLog::Mark outcomes;
  rollout::Snapshot rollout;  // of tokens alone: no group is open between two steps
};

}  // namespace slime::loop
