#pragma once

/// Outcomes of a trained step's prompts: the ledger says `trained` only of those that changed the
/// weights.

#include <cstdint>
#include <vector>

#include "buffer/ledger.h"
#include "core/sample.h"
#include "train/trainer.h"

namespace slime::report {

/// One record per group, in their order. A group is trained when at least one of its samples was
/// part of an update that was made, and otherwise skipped; the reason is that of the first update
/// with a sample of the group that was not made. `report` is that of a batch made of `groups`.
std::vector<buffer::LedgerRecord> training_outcomes(const std::vector<Group>& groups,
                                                    const train::TrainReport& report, int64_t step);

}  // namespace slime::report
