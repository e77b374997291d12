#pragma once

/// `slime grammar`: which texts a grammar accepts, on JSON lines.

#include <span>
#include <string>

namespace slime::cli {

/// {"kind", "src", "texts"} -> {"compiled", "error", "results"}. 1 when tokens of --model-path give another
/// answer than bytes.
int grammar(std::span<const std::string> arguments);

}  // namespace slime::cli
