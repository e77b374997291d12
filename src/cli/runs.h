#pragma once

/// `slime runs`: the runs of a folder with their branches.

#include <span>
#include <string>

namespace slime::cli {

int runs(std::span<const std::string> arguments);

}  // namespace slime::cli
