#include "config/flag.h"

#include <gtest/gtest.h>

#include <type_traits>
#include <utility>
#include <vector>

#include "core/json.h"

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

TEST(FlagValue, ThatWasMovedFromIsReadAsBefore) {
  Flag<std::string> model{"tiny"};
  const Flag<std::string> taken = std::move(model);
  EXPECT_EQ(taken.get(), "tiny");
  EXPECT_EQ(model.get(), "tiny");  // NOLINT: what is tested
  model = std::move(const_cast<Flag<std::string>&>(taken));
  EXPECT_EQ(taken.get(), "tiny");
  EXPECT_TRUE(model.is_read());
  std::vector<Flag<bool>> flags(1);
  flags.resize(100);  // moves the first
  for (const Flag<bool>& flag : flags) EXPECT_FALSE(flag.get());
}

// A bool would become 0 or 1 there; `.get()` says true or false. In the braces of a json::object such
// a flag does not compile either.
static_assert(!std::is_constructible_v<json::value, const Flag<bool>&>);
static_assert(!std::is_assignable_v<json::value&, const Flag<bool>&>);
static_assert(!std::is_convertible_v<const Flag<bool>&, int>);
static_assert(!std::is_convertible_v<const Flag<bool>&, double>);
static_assert(std::is_convertible_v<const Flag<bool>&, bool>);

TEST(FlagValue, IsInJsonWhatItIs) {
  const json::object object{{"steps", Flag<int64_t>{3}.get()}, {"is_on", Flag<bool>{true}.get()}};
  EXPECT_EQ(json_text(object), R"({"steps":3,"is_on":true})");
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
