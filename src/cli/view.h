#pragma once

/// `slime view`: runs as a page that grows with them.

#include <span>
#include <string>

namespace slime::cli {

int view(std::span<const std::string> arguments);

}  // namespace slime::cli
