#pragma once

/// `slime data`: the rows of a data set as a run would read them.

#include <span>
#include <string>

namespace slime::cli {

int data(std::span<const std::string> arguments);

}  // namespace slime::cli
