#pragma once

#include <span>
#include <string>

namespace slime::cli {

/// `slime eval MODEL --data NAME=FILE`: scores of a model, with intervals; or of two results their difference.
int eval(std::span<const std::string> arguments);

}  // namespace slime::cli
