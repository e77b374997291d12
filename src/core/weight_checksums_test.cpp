#include "core/weight_checksums.h"

#include <gtest/gtest.h>

#include "core/xxhash64.h"

namespace slime {
namespace {

/// Of the published test vectors, and of lengths around each step of the algorithm computed by the
/// Python package xxhash.
TEST(XxHash64, IsTheOneThatOthersCompute) {
  EXPECT_EQ(xxhash64(""), 0xEF46DB3751D8E999);
  EXPECT_EQ(xxhash64("abc"), 0x44BC2CF5AD770999);
  EXPECT_EQ(xxhash64("Nobody inspects the spammish repetition"), 0xFBCEA83C8A378BF1);
  for (const auto& [count, hash] :
       std::vector<std::pair<int, uint64_t>>{{1, 0xE934A84ADB052768},
                                             {4, 0xFFCED8604453CC1E},
                                             {7, 0x14CC643F630C72D2},
                                             {8, 0x884A173614B81B8D},
                                             {31, 0xC346D2B59B4D8EE1},
                                             {32, 0xCBF59C5116FF32B4},
                                             {33, 0x0C535D1ACAFB8EAD},
                                             {100, 0x6AC1E58032166597}}) {
    std::string counting;
    for (int i = 0; i < count; ++i) counting += static_cast<char>(i);
    EXPECT_EQ(xxhash64(counting), hash) << count;
  }
  EXPECT_EQ(xxhash64("abc", 7), 0x9E755206156676D7);
}

TEST(WeightChecksums, DifferencesAreNamedWhateverTheOrder) {
  const WeightChecksums a{{"x", 1}, {"y", 2}, {"z", 3}};
  EXPECT_TRUE(differing_tensors(a, {{"z", 3}, {"x", 1}, {"y", 2}}).empty());
  EXPECT_EQ(differing_tensors(a, {{"x", 1}, {"y", 4}, {"w", 3}}),
            (std::vector<std::string>{"w", "y", "z"}));
  EXPECT_NE(combined(a), combined({{"x", 1}, {"y", 2}, {"z", 4}}));
}

TEST(WeightChecksums, AMessageHasTheFirstFewNames) {
  EXPECT_EQ(list_of_tensors({"a", "b"}), "a, b");
  EXPECT_EQ(list_of_tensors(std::vector<std::string>(11, "a")),
            "a, a, a, a, a, a, a, a and 3 more");
}

}  // namespace
}  // namespace slime
