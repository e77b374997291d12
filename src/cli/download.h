#pragma once

/// `slime download`: models and data sets into the cache that Hugging Face's tools share.

#include <span>
#include <string>

namespace slime::cli {

int download(std::span<const std::string> arguments);

}  // namespace slime::cli
