#pragma once

/// Two e4m3 codes as two numbers of bfloat16 by integer arithmetic, but for a power of two: sign, exponent and digits
/// of a code are put where bfloat16 has them, whose exponents have a bias of 127 instead of 7.
///
///   code  s eeee ddd        bfloat16  s 0000eeee ddd0000  =  2^-120 times the number
///
/// Subnormal codes and signed zeros included. The codes of no number, 0x7f and 0xff, become 480.

#include <cstdint>

#ifndef SLIME_ANYWHERE
#define SLIME_ANYWHERE
#endif

namespace slime::kernels::cuda::experts {

/// 2^120 twice, in bfloat16: the power of two that as_small_bfloat16() leaves out.
inline constexpr uint32_t kTwoTimes2To120 = 0x7b807b80;

/// `codes`: in bits 0 to 7 and 16 to 23, zeros elsewhere. Multiplications are other units' work than logic, which is what
/// there is most of.
SLIME_ANYWHERE constexpr uint32_t as_small_bfloat16(uint32_t codes) {
  const uint32_t moved = codes << 4;          // signs are in bits 11 and 27
  return moved + (moved & 0x08000800U) * 15;  // and then in bits 15 and 31
}

}  // namespace slime::kernels::cuda::experts
