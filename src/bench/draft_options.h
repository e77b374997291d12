#pragma once

/// Drafts that an engine verifies in a measurement (docs/decisions/0163-drafts.md). Weights are made up, so how many
/// are right is given, and speeds are the machine's.

#include <cstdint>

#include "core/draft_counts.h"
#include "core/json.h"
#include "engine/drafts/draft_settings.h"

namespace slime::bench {

struct DraftOptions {
  int64_t most = 0;         // of a sequence in a step; 0: none
  double acceptance = 0.5;  // of each, where those before it are right
  bool always = false;      // `most` in each step, whatever they cost

  engine::DraftSettings settings() const;
};

/// Adds the options to a line, and what became of the drafts; nothing where there are none.
void put_drafts(json::object& line, const DraftOptions& options, const DraftCounts& counts);

/// Tokens that a step of a sequence drew, mean: 1 without drafts.
double tokens_per_step(const DraftCounts& counts);

}  // namespace slime::bench
