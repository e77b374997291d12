#include "kernels/cuda/vendor/fp8_codes.h"

#include <c10/util/Float8_e4m3fn.h>
#include <c10/util/Float8_e4m3fnuz.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace slime::kernels {
namespace {

using Fn = Fp8Codes<Fp8Encoding::kFn>;
using Fnuz = Fp8Codes<Fp8Encoding::kFnuz>;

/// LibTorch's types are the twins.
template <typename Codes, typename Twin>
void expect_all_codes() {
  for (int code = 0; code < 256; ++code) {
    const auto byte = static_cast<uint8_t>(code);
    const float ours = Codes::decode(byte);
    const float theirs = static_cast<float>(Twin(byte, Twin::from_bits()));
    if (std::isnan(theirs)) {
      EXPECT_TRUE(std::isnan(ours)) << code;
      continue;
    }
    EXPECT_EQ(ours, theirs) << code;
    EXPECT_EQ(std::signbit(ours), std::signbit(theirs)) << code;
    EXPECT_EQ(Codes::encode(ours), byte) << code;
  }
}

TEST(Fp8Codes, All256CodesOfBothEncodingsMeanWhatLibTorchSaysAndComeBack) {
  expect_all_codes<Fn, c10::Float8_e4m3fn>();
  expect_all_codes<Fnuz, c10::Float8_e4m3fnuz>();
}

template <typename Codes, typename Twin>
void expect_rounding(float x) {
  const float clamped = std::clamp(x, -Codes::kLargest, Codes::kLargest);
  EXPECT_EQ(Codes::encode(x), Twin(clamped).x) << x;
}

TEST(Fp8Codes, RoundToTheNearestOfTwoTheEvenOneAndStopAtTheLargest) {
  for (const float sign : {1.0F, -1.0F}) {
    for (int code = 0; code < 127; ++code) {
      const float low = Fn::decode(static_cast<uint8_t>(code)),
                  high = code == 126 ? 464.0F : Fn::decode(static_cast<uint8_t>(code + 1));
      for (const float share : {0.0F, 0.25F, 0.49F, 0.5F, 0.51F, 0.75F}) {
        const float x = sign * (low + share * (high - low));
        expect_rounding<Fn, c10::Float8_e4m3fn>(x);
        expect_rounding<Fnuz, c10::Float8_e4m3fnuz>(x / 2);
      }
    }
    EXPECT_EQ(Fn::decode(Fn::encode(sign * 1e30F)), sign * 448.0F);
    EXPECT_EQ(Fnuz::decode(Fnuz::encode(sign * INFINITY)), sign * 240.0F);
  }
  EXPECT_TRUE(std::isnan(Fn::decode(Fn::encode(NAN))));
  EXPECT_TRUE(std::isnan(Fnuz::decode(Fnuz::encode(NAN))));
  EXPECT_EQ(Fnuz::encode(-1e-9F), 0);  // there is one zero
}

TEST(Fp8Codes, ACodeReadInTheOtherEncodingIsHalfOfItsNumber) {
  for (int code = 0; code < 256; ++code) {
    const auto byte = static_cast<uint8_t>(code);
    if (code == 0x80 || (code & 0x7f) == 0x7f) continue;
    EXPECT_EQ(2 * Fnuz::decode(byte), Fn::decode(byte)) << code;
  }
  EXPECT_TRUE(std::isnan(Fnuz::decode(0x80)));  // minus zero must be handed over as zero
}

}  // namespace
}  // namespace slime::kernels
