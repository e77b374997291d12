#include "bench/descriptions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "bench/measurements.h"
#include "core/error.h"

namespace slime::bench {
namespace {

using ::testing::ElementsAre;

Descriptions described() {
  return json::object{
      {"grpo-SIZE", json::object{{"measurement", "grpo-command"},
                                 {"model", "qwen3-SIZE"},
                                 {"prompts", 64},
                                 {"forms", json::array{"sync", "april"}},
                                 {"log", true}}},
      {"grpo-SIZE-long", json::object{{"measurement", "grpo-command"}, {"steps", 9}}},
      {"grpo-4b", json::object{{"measurement", "exact"}}}};
}

TEST(Descriptions, SayTheFlagsOfAMeasurement) {
  const auto found = find_description(described(), "grpo-0.6b", {});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->measurement, "grpo-command");
  EXPECT_THAT(found->flags, ElementsAre("--model", "qwen3-0.6b", "--prompts", "64", "--forms",
                                        "sync,april", "--log"));
}

TEST(Descriptions, FlagsThatAreTypedWin) {
  const std::vector<std::string> typed{"--prompts", "8", "--forms=sync"};
  EXPECT_THAT(find_description(described(), "grpo-8b", typed)->flags,
              ElementsAre("--model", "qwen3-8b", "--log"));
}

TEST(Descriptions, AnExactNameIsBeforePatternsAndALongPatternBeforeAShortOne) {
  EXPECT_EQ(find_description(described(), "grpo-4b", {})->measurement, "exact");
  EXPECT_THAT(find_description(described(), "grpo-4b-long", {})->flags,
              ElementsAre("--steps", "9"));
  EXPECT_FALSE(find_description(described(), "grpo-", {}));
  EXPECT_FALSE(find_description(described(), "forms-4b", {}));
}

TEST(Descriptions, AFileOfAnotherFormIsRefusedWithTheName) {
  const std::string path = std::filesystem::path(::testing::TempDir()) / "descriptions.json";
  for (const auto& [text, words] :
       {std::pair{"[]", "should hold a JSON object"},
        std::pair{R"({"a": {"model": "x"}})", "\"a\": should be an object"},
        std::pair{R"({"a": {"measurement": "b", "log": false}})",
                  "log should be a text, a number, true"}}) {
    std::ofstream(path) << text;
    EXPECT_THAT([&] { read_descriptions(path); },
                ::testing::ThrowsMessage<ConfigError>(::testing::HasSubstr(words)));
  }
}

TEST(Descriptions, OfTheRepositoryNameMeasurementsThatThereAre) {
  for (const auto& entry :
       read_descriptions(std::string(SLIME_SOURCE_DIR) + "/bench/measurements.json")) {
    const auto name = std::string(entry.value().at("measurement").get_string());
    EXPECT_TRUE(std::ranges::any_of(measurements(), [&](const Measurement& one) {
      return name == one.name;
    })) << name;
  }
}

}  // namespace
}  // namespace slime::bench
