#pragma once

/// Integer division that rounds up, and rounding up to a multiple.

#include <concepts>

namespace slime {

/// The smallest integer that is at least a / b. a >= 0, b > 0.
template <std::integral T>
constexpr T divide_up(T a, T b) {
  return (a + b - 1) / b;
}

/// The smallest multiple of b that is at least a.
template <std::integral T>
constexpr T round_up(T a, T b) {
  return divide_up(a, b) * b;
}

}  // namespace slime
