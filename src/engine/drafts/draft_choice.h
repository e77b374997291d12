#pragma once

/// Draft choice: how many drafts each sequence of a step gets, so that the expected tokens a second are the most
/// (docs/decisions/0163-drafts.md, 4).

#include <cstdint>
#include <span>
#include <vector>

#include "engine/drafts/draft.h"
#include "engine/drafts/step_costs.h"

namespace slime::engine {

/// `drafts` are of each sequence, the longest-running one first; `num_rows` > 0 are the rows of a step without drafts,
/// each of which counts as a token, those of prompts too. Drafts in descending order of their chance, of equal ones the
/// first sequence's, add a row and a chance of a token each: the best number of them is taken, not the first after which
/// one more does not pay, since costs rise in steps. The step has at most `most_rows` rows. Returns a number for each
/// sequence.
std::vector<int64_t> choose_drafts(std::span<const std::vector<Draft>> drafts, int64_t num_rows,
                                   int64_t most_rows, const StepCosts& costs);

}  // namespace slime::engine
