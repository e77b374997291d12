#pragma once

/// Planner of drafts: which requests of a step get how many, and what became of them
/// (docs/decisions/0163-drafts.md).

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/drafts/acceptance.h"
#include "engine/drafts/draft_settings.h"
#include "engine/drafts/draft_texts.h"
#include "engine/drafts/step_costs.h"
#include "engine/scheduler.h"

namespace slime::engine {

/// Of a request that may get drafts.
struct Drafting {
  std::shared_ptr<DraftTexts::Text> text;
  Acceptance acceptance;
};

class DraftPlanner {
 public:
  explicit DraftPlanner(const DraftSettings& settings)
      : settings_(settings), texts_(settings.text_bytes) {}

  /// Appends drafts to chunks of decode, and to the tokens of their requests.
  void add_drafts(std::vector<Chunk>& chunks, Scheduler& scheduler);

  /// The step of these chunks took so long, from its launch until its tokens were known.
  void note_step(std::span<const Chunk> chunks, double seconds);

  /// Whether `draft`, of the request's token at `position`, is right where the model draws `drawn`.
  bool is_right(const Request& request, int64_t position, TokenId draft, TokenId drawn) const;

  /// A step of the request had `num_drafted` drafts, and drew the first `num_kept` of them itself.
  void note_kept(const Request& request, int64_t num_drafted, int64_t num_kept);

  /// Takes in what the request has sampled, for others and for what comes behind it.
  void follow(Request& request);

 private:
  const DraftSettings settings_;
  DraftTexts texts_;
  StepCosts costs_;
};

}  // namespace slime::engine
