#pragma once

/// Settings of the drafts that an engine verifies (docs/decisions/0163-drafts.md).

#include <cstdint>
#include <optional>

namespace slime::engine {

struct DraftSettings {
  int64_t most = 0;     // per sequence and step; 0: none
  bool always = false;  // as many as the texts give, whatever they cost: for measurements and tests
  int64_t text_bytes = int64_t{256} << 20;  // for texts of earlier responses and their index
  /// In [0, 1]: any tokens are drafts, and each counts as right with this chance, whatever is drawn
  /// (engine/drafts/forced_drafts.h). For measurements alone: responses are then not the model's.
  std::optional<double> forced_acceptance;
};

}  // namespace slime::engine
