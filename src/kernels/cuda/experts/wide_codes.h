#pragma once

/// Two e4m3 codes as two numbers of bfloat16 by integer arithmetic, but for a power of two: sign, exponent and digits
/// of a code are put where bfloat16 has them, whose exponents have a bias of 127 instead of 7.
///
///   code   s eeee ddd              number = 2^120 times bfloat16  s 0000eeee ddd0000
///
/// That holds for subnormal codes, too, and for zeros with their signs. The codes of no number, 0x7f and 0xff, become 480.

#include <cstdint>

#ifndef SLIME_ANYWHERE
#define SLIME_ANYWHERE
#endif

namespace slime::kernels::cuda::experts {

/// What the numbers lack, as two numbers of bfloat16.
inline constexpr uint32_t kTwoTimes2To120 = 0x7b807b80;

/// `spread`: the codes in bits 8 to 15 and 24 to 31, zeros elsewhere.
SLIME_ANYWHERE constexpr uint32_t as_small_bfloat16(uint32_t spread) {
  return (spread & 0x80008000U) | (spread >> 4 & 0x07f007f0U);
}

}  // namespace slime::kernels::cuda::experts
