#include "config/flag.h"

#include <gtest/gtest.h>

namespace slime::config {
namespace {

TEST(FlagValue, RecordsThatItWasReadAndNotThatItWasPeekedAt) {
  Flag<double> rate{0.5};
  EXPECT_EQ(rate.peek(), 0.5);
  rate = 0.25;
  EXPECT_FALSE(rate.is_read());
  const double read = rate;
  EXPECT_EQ(read, 0.25);
  EXPECT_TRUE(rate.is_read());
  rate.forget_read();
  EXPECT_FALSE(rate.is_read());
}

TEST(FlagValue, EveryWayOfLookingIsARead) {
  const auto reads = [](const auto& flag, const auto& look) {
    flag.forget_read();
    look(flag);
    return flag.is_read();
  };
  const Flag<std::string> text{"a"};
  EXPECT_TRUE(reads(text, [](const auto& flag) { (void)flag.empty(); }));
  EXPECT_TRUE(reads(text, [](const auto& flag) { (void)(flag == "a"); }));
  EXPECT_TRUE(reads(text, [](const auto& flag) { (void)("x/" + flag); }));
  EXPECT_TRUE(reads(text, [](const auto& flag) { (void)fmt::format("{}", flag); }));
  EXPECT_TRUE(reads(text, [](const auto& flag) { (void)std::filesystem::path(flag); }));
  const Flag<std::optional<int64_t>> number;
  EXPECT_TRUE(reads(number, [](const auto& flag) { (void)flag.has_value(); }));
  EXPECT_TRUE(reads(number, [](const auto& flag) { (void)flag.value_or(1); }));
  EXPECT_TRUE(reads(number, [](const auto& flag) { (void)!flag; }));
  const Flag<std::vector<std::string>> list;
  EXPECT_TRUE(reads(list, [](const auto& flag) {
    for (const std::string& each : flag) (void)each;
  }));
}

TEST(FlagValue, CopiesShareTheRecordUntilTheyAreSeparated) {
  Flag<int64_t> count{3};
  Flag<int64_t> copy = count;
  EXPECT_EQ(copy + 1, 4);
  EXPECT_TRUE(count.is_read());
  count.forget_read();
  copy.separate();
  EXPECT_EQ(copy + 1, 4);
  EXPECT_FALSE(count.is_read());
}

TEST(FlagValue, WhoeverReadsWhatStemsFromAFlagReadsIt) {
  Flag<bool> fp32{true};
  Flag<std::string> dtype{"bfloat16"};
  dtype.stems_from(fp32);
  dtype = "float32";
  EXPECT_FALSE(fp32.is_read());
  EXPECT_EQ(dtype.get(), "float32");
  EXPECT_TRUE(fp32.is_read());
}

}  // namespace
}  // namespace slime::config
