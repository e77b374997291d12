#pragma once

/// Messages between controllers that train nothing themselves and their ranks, besides shares
/// (train/share.h): the division of a batch, and the reports of ranks.

#include <string>
#include <string_view>
#include <vector>

#include "train/trainer.h"

namespace slime::train {

/// Trainer::divide() of ranks with this configuration, for who has none: `network` is of the whole
/// model's shape. Of functions counts only that there are some.
std::vector<BatchShare> divide(const TrainBatch& batch, const TrainConfig& config,
                               model::Network& network);

/// The bytes of a report of a share, and back. Throws BugError for bytes that are no report.
std::string to_frame(const TrainReport& report);
TrainReport report_from_frame(std::string_view bytes);

}  // namespace slime::train
