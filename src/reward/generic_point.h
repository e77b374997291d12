#pragma once

/// Values of symbols at which two different expressions do not agree by chance.

#include <complex>
#include <string_view>

namespace slime::reward {

inline constexpr int kNumGenericPoints = 3;

/// The value of a symbol at a generic point: neither real nor of modulus one, the same in every
/// run.
std::complex<double> generic_point(std::string_view symbol, int point);

}  // namespace slime::reward
