#pragma once

/// Planner of drafts: which requests of a step get how many, from which source, and what became of them
/// (docs/decisions/0163-drafts.md, 0164-mtp-layers.md, 0165-eagle3.md).

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/drafts/acceptance.h"
#include "engine/drafts/draft_expectation.h"
#include "engine/drafts/draft_settings.h"
#include "engine/drafts/draft_texts.h"
#include "engine/drafts/step_costs.h"
#include "engine/scheduler.h"

namespace slime::engine {

/// Of a request that may get drafts.
struct Drafting {
  std::shared_ptr<DraftTexts::Text> text;  // null: no drafts come from texts so far
  Acceptance of_texts;
  Acceptance of_layer{Acceptance::kPriorOfLayer};
  std::vector<Draft> foretold;  // by the draft layer or model, in the step before
  int64_t num_wanted = 1;       // of those, in the next step
  bool is_of_layer = false;     // where the drafts proposed last come from
};

class DraftPlanner {
 public:
  explicit DraftPlanner(const DraftSettings& settings)
      : settings_(settings), texts_(settings.text_bytes) {}

  /// Whether drafts of a request are verified where its steps are computed.
  using VerifiesFn = std::function<bool(const Request&)>;

  /// The next step is likely to get drafts, or it is time to try: no step should be in flight when it is planned.
  bool wants_known_tokens() const { return settings_.always || expectation_.is_due(); }

  /// Appends drafts to chunks of decode, and to the tokens of their requests, where `verifies` says so, and says
  /// what the draft layer does with the chunks.
  void add_drafts(std::vector<Chunk>& chunks, Scheduler& scheduler, const VerifiesFn& verifies);

  /// A step of so many rows, all of decode, took so long: from when the tokens of the one before were known, or
  /// from when it was planned where that is later, until its own were known.
  void note_step(int64_t num_rows, double seconds) { costs_.observe(num_rows, seconds); }

  /// Whether `draft`, of the request's token at `position`, is right where the model draws `drawn`.
  bool is_right(const Request& request, int64_t position, TokenId draft, TokenId drawn) const;

  /// A step of the request had `num_drafted` drafts, and drew the first `num_kept` of them itself.
  void note_kept(const Request& request, int64_t num_drafted, int64_t num_kept);

  /// What the draft layer foretold behind the tokens that the request's step drew.
  void note_foretold(Request& request, std::vector<Draft> foretold);

  /// Takes in what the request has sampled, for others and for what comes behind it.
  void follow(Request& request);

 private:
  /// Of the source that is likely to have more of them right; those of the draft layer serve one step.
  std::vector<Draft> proposed(Request& request, int64_t most);
  void feed_layer(Chunk& chunk, Scheduler& scheduler);

  const DraftSettings settings_;
  DraftTexts texts_;
  StepCosts costs_;
  DraftExpectation expectation_;
};

}  // namespace slime::engine
