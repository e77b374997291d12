#include "reward/generic_point.h"

#include <array>
#include <cstdint>

#include "core/random.h"

namespace slime::reward {

std::complex<double> generic_point(std::string_view symbol, int point) {
  uint64_t key = 14695981039346656037ULL;  // FNV-1a of the name
  for (const char c : symbol) key = (key ^ static_cast<uint8_t>(c)) * 1099511628211ULL;
  const auto stream = static_cast<uint64_t>(point);
  const double modulus = 1.15 + 0.7 * uniform(key, stream, 0);
  // Two of the three lie left of the imaginary axis, where sqrt(x^2) is -x.
  constexpr std::array<double, kNumGenericPoints> kFirstAngle{0.35, 2.0, 3.5};
  const double angle = kFirstAngle[static_cast<std::size_t>(point)] + 0.9 * uniform(key, stream, 1);
  return std::polar(modulus, angle);
}

}  // namespace slime::reward
