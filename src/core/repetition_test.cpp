#include "core/repetition.h"

#include <gtest/gtest.h>

#include <string>

#include "core/splitmix64.h"

namespace slime {
namespace {

std::string repeated(std::string_view part, std::size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += part;
  return text;
}

std::string numbered_lines() {
  std::string text;
  for (int i = 0; i < 300; ++i)
    text += "So the answer is " + std::to_string(i) + ". Let me check again.\n";
  return text.substr(0, 10'000);
}

TEST(Repetition, SizesAreAboutThoseOfZlib) {
  // len(zlib.compress(numbered_lines(), 9)) == 653
  EXPECT_NEAR(static_cast<double>(compressed_size(numbered_lines())), 653, 65);
  EXPECT_LT(compressed_size(repeated("Wait, let me think again. ", 10'000)), 100U);  // 76
  std::string noise;
  uint64_t state = 1;
  for (int i = 0; i < 10'000; ++i) {
    state = splitmix64(state);
    noise += static_cast<char>(state >> 56);
  }
  EXPECT_NEAR(static_cast<double>(compressed_size(noise)), 10'011, 500);
  EXPECT_LT(compressed_size(""), 20U);
  EXPECT_LT(compressed_size("ab"), 20U);
}

TEST(Repetition, IsOfTheEndOfLongTextsAlone) {
  const std::string loop = repeated("Wait, let me think again. ", 10'100);
  EXPECT_TRUE(is_repetitive(loop));
  EXPECT_FALSE(is_repetitive(loop.substr(0, 10'000))) << "it is no longer than that";
  EXPECT_TRUE(is_repetitive(numbered_lines() + loop)) << "whatever came before";
}

TEST(Repetition, CountsCharactersAndNotBytes) {
  // 2 bytes each: 6,000 characters are not more than 10,000.
  EXPECT_FALSE(is_repetitive(repeated("\xc3\xa9", 12'000)));
  EXPECT_TRUE(is_repetitive(repeated("\xc3\xa9", 22'000)));
}

}  // namespace
}  // namespace slime
