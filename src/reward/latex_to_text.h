#pragma once

/// LaTeX of an answer to plain text, as the converter does that the math rewards rely on (spec
/// appendix A.1).
///
///   \frac{1}{2} -> 1/2      \sqrt{8} -> sqrt(8)      2\pi -> 2pi      \left(1,2\right] -> (1,2]

#include <optional>
#include <string>
#include <string_view>

namespace slime::reward {

/// Nothing when braces or environments do not match, or nest deeper than 100.
std::optional<std::string> latex_to_text(std::string_view latex);

}  // namespace slime::reward
