#pragma once

/// `slime tinker`: a model that is trained and sampled by requests in Tinker's protocol.

#include <span>
#include <string>

namespace slime::cli {

int tinker(std::span<const std::string> arguments);

}  // namespace slime::cli
