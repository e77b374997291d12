#include "core/nearest_name.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

namespace slime {
namespace {

constexpr std::array<std::string_view, 4> kNames = {"temperature", "top_p", "top_k", "n"};

TEST(NearestName, ALetterTooFewIsFound) {
  EXPECT_EQ(nearest_name("temprature", kNames), "temperature");
}

TEST(NearestName, OfEquallyNearOnesItIsTheFirst) {
  EXPECT_EQ(nearest_name("top_x", kNames), "top_p");
}

TEST(NearestName, AnotherWordHasNone) {
  EXPECT_EQ(nearest_name("session", kNames), std::nullopt);
  EXPECT_EQ(nearest_name("m", kNames), std::nullopt);
  EXPECT_EQ(nearest_name("", kNames), std::nullopt);
}

TEST(NearestName, AMessageSaysItOrNothing) {
  EXPECT_EQ(did_you_mean("top-p", kNames), "; did you mean top_p?");
  EXPECT_EQ(did_you_mean("session", kNames), "");
}

TEST(NearestName, AHugeNameCostsNothing) {
  EXPECT_EQ(nearest_name(std::string(1 << 24, 'x'), kNames), std::nullopt);
}

}  // namespace
}  // namespace slime
