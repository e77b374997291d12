#pragma once

/// Settings of the drafts that an engine verifies (docs/decisions/0163-drafts.md, 0164-mtp-layers.md,
/// 0165-eagle3.md).

#include <cstdint>
#include <optional>

namespace slime::engine {

/// Of a step with drafts, unless they are verified whatever they cost.
inline constexpr int64_t kMostDraftedRows = 1024;

struct DraftSettings {
  int64_t most = 0;     // per sequence and step; 0: none
  bool always = false;  // as many as there are, whatever they cost: for measurements and tests
  bool texts = true;    // drafts come from texts of the same prompt
  bool layer = false;   // they come from the model's draft layer, which its network computes
  bool model = false;   // they come from EngineConfig::draft_model; never with `layer`
  int64_t text_bytes = int64_t{256} << 20;  // for texts of earlier responses and their index
  /// In [0, 1]: any tokens are drafts, and each counts as right with this chance, whatever is drawn
  /// (engine/drafts/forced_drafts.h). For measurements alone: responses are then not the model's.
  std::optional<double> forced_acceptance;

  /// Steps foretell tokens for the next one.
  bool foretells() const { return layer || model; }

  /// The same of a network that may not compute its draft layer: drafts of other sources are left.
  DraftSettings for_network(bool has_draft_layer) const {
    DraftSettings settings = *this;
    settings.layer = layer && has_draft_layer;
    if (!settings.foretells() && !texts) settings.most = 0;
    return settings;
  }
};

}  // namespace slime::engine
