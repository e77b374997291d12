#include "kernels/cuda/experts/wide_codes.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "kernels/cuda/vendor/fp8_codes.h"

namespace slime::kernels::cuda::experts {
namespace {

float of_bfloat16(uint32_t bits) { return std::bit_cast<float>(bits << 16); }

TEST(WideCodes, AreTheNumbersButForAPowerOfTwo) {
  EXPECT_EQ(of_bfloat16(kTwoTimes2To120 & 0xffffU), std::ldexp(1.0F, 120));
  EXPECT_EQ(kTwoTimes2To120 >> 16, kTwoTimes2To120 & 0xffffU);
  for (uint32_t code = 0; code < 256; ++code) {
    const uint32_t other = 255 - code;
    const uint32_t wide = as_small_bfloat16(code | other << 16);
    const auto expect_number = [](uint32_t bits, uint32_t of) {
      const float number = std::ldexp(of_bfloat16(bits), 120);
      const bool is_number = (of & 0x7fU) != 0x7fU;
      const float exact = is_number ? Fp8Codes<Fp8Encoding::kFn>::decode(static_cast<uint8_t>(of))
                                    : std::copysign(480.0F, (of & 0x80U) != 0 ? -1.0F : 1.0F);
      EXPECT_EQ(std::bit_cast<uint32_t>(number), std::bit_cast<uint32_t>(exact)) << of;
    };
    expect_number(wide & 0xffffU, code);
    expect_number(wide >> 16, other);
  }
}

}  // namespace
}  // namespace slime::kernels::cuda::experts
