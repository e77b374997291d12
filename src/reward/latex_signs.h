#pragma once

/// Unicode signs of mathematics as LaTeX commands.

#include <string>
#include <string_view>

namespace slime::reward {

/// Commands instead of signs (one half, pi, a small two above the line): "\frac{1}{2}\pi \le x^{2}"; full-width ASCII as
/// ASCII; digits of every script as 0 to 9; all else as it is.
std::string with_latex_signs(std::string_view text);

}  // namespace slime::reward
