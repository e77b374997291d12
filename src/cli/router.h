#pragma once

/// `slime router`: a gateway in front of several servers (docs/router.md).

#include <span>
#include <string>

namespace slime::cli {

int router(std::span<const std::string> arguments);

}  // namespace slime::cli
