#pragma once

#include <cstdint>

namespace slime {

/// 2^64 / golden ratio, odd: multiples of it are spread evenly (Fibonacci hashing).
inline constexpr uint64_t kGoldenRatio64 = 0x9E3779B97F4A7C15U;

/// Sebastiano Vigna's splitmix64, one output: neighbouring `x` give values that share nothing.
constexpr uint64_t splitmix64(uint64_t x) {
  x += kGoldenRatio64;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31);
}

}  // namespace slime
