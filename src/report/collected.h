#pragma once

/// The groups that one step is trained on, with what was counted while they were collected.

#include <cstdint>
#include <optional>
#include <vector>

#include "core/sample.h"
#include "report/metrics.h"
#include "report/untrained_tokens.h"

namespace slime::report {

struct Collected {
  std::vector<Group> groups;
  Metrics metrics;      // rollout/dynamic_filter/drop_<reason>, ...
  Metrics logged = {};  // that users' functions logged: written in any case
  /// Of sampled groups: tokens that are sampled and not in them, by cause (untrained_tokens.h).
  std::optional<UntrainedTokens> untrained = {};
  /// Functions made the samples: what they mask is in untrained["lost"].
  bool masks_are_lost = false;
  int64_t generated_tokens = 0;  // all new ones, trained on or not
  double seconds = 0;            // of the whole call
  bool data_ended = false;       // there are fewer groups than a step has
  bool is_logged = false;        // by a function of the user's: nobody else writes metrics of it
};

}  // namespace slime::report
