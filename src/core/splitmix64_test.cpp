#include "core/splitmix64.h"

#include <gtest/gtest.h>

namespace slime {
namespace {

TEST(Splitmix64, GivesTheSequenceOfItsAuthor) {
  // The first outputs of the reference generator with state 1234567.
  EXPECT_EQ(splitmix64(1234567), 6457827717110365317U);
  EXPECT_EQ(splitmix64(1234567 + kGoldenRatio64), 3203168211198807973U);
}

}  // namespace
}  // namespace slime
