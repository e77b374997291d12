#pragma once

/// Codes of float8 e4m3 in their two encodings, by integer arithmetic: what processors without an instruction
/// for it do, and what those with one are checked against.
///
///          exponent bias   largest   not a number      zeros
///   fn     7               448       0x7f and 0xff     0x00 and 0x80
///   fnuz   8               240       0x80              0x00
///
/// Checkpoints and pages have fn. The matrix instructions of gfx942 read fnuz, those of gfx950 fn. A code but 0x80,
/// 0x7f and 0xff is half of its number in fn when read as fnuz: whoever hands codes over doubles the factor of their block.
/// (OCP 8-bit floating point specification 1.0; "FP8 formats", AMD Instinct MI300 instruction set architecture.)

#include <bit>
#include <cmath>
#include <cstdint>

#ifndef SLIME_ANYWHERE
#define SLIME_ANYWHERE
#endif

namespace slime::kernels {

enum class Fp8Encoding { kFn, kFnuz };

template <Fp8Encoding kEncoding>
struct Fp8Codes {
  static constexpr bool kIsFn = kEncoding == Fp8Encoding::kFn;
  static constexpr int kBias = kIsFn ? 7 : 8;
  static constexpr float kLargest = kIsFn ? 448.0F : 240.0F;
  static constexpr uint8_t kLargestCode = kIsFn ? 0x7e : 0x7f;

  SLIME_ANYWHERE static float decode(uint8_t code) {
    const unsigned exponent = code >> 3 & 15U, digits = code & 7U;
    const bool is_number = kIsFn ? (code & 0x7fU) != 0x7fU : code != 0x80U;
    if (!is_number) return NAN;
    const float size = exponent == 0 ? static_cast<float>(digits) * power_of_two(-2 - kBias)
                                     : static_cast<float>(8U + digits) *
                                           power_of_two(static_cast<int>(exponent) - 3 - kBias);
    return (code & 0x80U) != 0 ? -size : size;
  }

  /// The nearest, of two the even one; beyond the largest that.
  SLIME_ANYWHERE static uint8_t encode(float x) {
    const auto bits = std::bit_cast<uint32_t>(x);
    const unsigned sign = bits >> 24 & 0x80U, magnitude = bits & 0x7fffffffU;
    if (magnitude > 0x7f800000U) return static_cast<uint8_t>(kIsFn ? 0x7fU | sign : 0x80U);
    const float size = std::bit_cast<float>(magnitude);
    if (size >= kLargest) return static_cast<uint8_t>(kLargestCode | sign);
    const int exponent = static_cast<int>(magnitude >> 23) - 127;
    const int smallest = 1 - kBias, unit = (exponent < smallest ? smallest : exponent) - 3;
    // Up to 16 units; the product is exact. Adding 2^23 rounds.
    const float rounded = size * power_of_two(-unit) + 8388608.0F;
    const unsigned units = std::bit_cast<uint32_t>(rounded) - 0x4b000000U;
    const unsigned code =
        units < 8 ? units : (static_cast<unsigned>(unit + 3 + kBias) << 3) + units - 8;
    return static_cast<uint8_t>(code == 0 && !kIsFn ? 0U : code | sign);
  }

 private:
  SLIME_ANYWHERE static float power_of_two(int exponent) {
    return std::bit_cast<float>(static_cast<uint32_t>(exponent + 127) << 23);
  }
};

}  // namespace slime::kernels
