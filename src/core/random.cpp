#include "core/random.h"

#include <cmath>
#include <numbers>

namespace slime {
namespace {

std::array<uint32_t, 4> draw(uint64_t seed, uint64_t stream, uint64_t counter) {
  return philox({static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32),
                 static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)},
                {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
}

double to_unit(uint32_t high, uint32_t low) {
  const uint64_t bits = ((static_cast<uint64_t>(high) << 32) | low) >> 11;
  return (static_cast<double>(bits) + 0.5) * 0x1.0p-53;
}

}  // namespace

std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53} * counter[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<uint32_t>(product0)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

double uniform(uint64_t seed, uint64_t stream, uint64_t counter) {
  const auto block = draw(seed, stream, counter);
  return to_unit(block[0], block[1]);
}

double normal(uint64_t seed, uint64_t stream, uint64_t counter) {
  const auto block = draw(seed, stream, counter);
  const double radius = std::sqrt(-2.0 * std::log(to_unit(block[0], block[1])));
  return radius * std::cos(2.0 * std::numbers::pi * to_unit(block[2], block[3]));
}

}  // namespace slime
