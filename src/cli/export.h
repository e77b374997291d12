#pragma once

#include <span>
#include <string>

namespace slime::cli {

/// `slime export RUN[@STEP] OUT`: the model of a run as a directory of its own, with a card.
int export_model(std::span<const std::string> arguments);

}  // namespace slime::cli
