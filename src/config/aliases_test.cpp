#include "config/aliases.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "config/resolved.h"
#include "config/unread_flags.h"

namespace slime::config {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

ParsedFlags parsed(const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return parse_flags(words);
}

TEST(Aliases, SetTheFlagsThatTheyMean) {
  EXPECT_EQ(parsed("--max-policy-version-lag 3").config.max_staleness, 3);
  EXPECT_EQ(parsed("--fp16").config.dtype, "float16");
  EXPECT_EQ(parsed("--dump-details out").config.save_debug_rollout_data,
            "out/rollout_data/{rollout_id}.jsonl");
  const RunConfig config = parsed("--pause-generation-mode retract").config;
  EXPECT_EQ(config.update_mode, "suspend");
  EXPECT_EQ(config.kv_on_update, "recompute");
}

TEST(Aliases, WhatIsNoValueIsToldUnderTheNameThatWasGiven) {
  EXPECT_THAT(parsed("--max-weight-staleness x").problems,
              ElementsAre("--max-weight-staleness x: should be a whole number"));
  EXPECT_THAT(parsed("--staleness-threshold x").problems,
              ElementsAre("--staleness-threshold x: should be a number"));
  EXPECT_THAT(parsed("--pause-generation-mode now").problems,
              ElementsAre(HasSubstr("should be one of in_place, retract, abort")));
  EXPECT_THAT(parsed("--bf16 yes").problems, ElementsAre(HasSubstr("takes no value")));
}

TEST(Aliases, TwoThatSayDifferentThingsAreAProblemWithBothNames) {
  EXPECT_THAT(parsed("--max-staleness 1 --max-weight-staleness 2").problems,
              ElementsAre("--max-staleness 1 and --max-weight-staleness 2: choose one"));
  EXPECT_THAT(parsed("--max-weight-staleness 2 --max-policy-version-lag 3").problems,
              ElementsAre("--max-weight-staleness 2 and --max-policy-version-lag 3: choose one"));
  EXPECT_THAT(parsed("--keep-cache-on-weight-update --pause-generation-mode abort").problems,
              ElementsAre("--keep-cache-on-weight-update and --pause-generation-mode abort: "
                          "choose one"));
  EXPECT_THAT(parsed("--max-staleness 2 --max-weight-staleness 2").problems, IsEmpty());
}

TEST(Aliases, OfTheSameOneTheLastCounts) {
  const ParsedFlags flags = parsed("--max-weight-staleness 2 --max-weight-staleness 3");
  EXPECT_THAT(flags.problems, IsEmpty());
  EXPECT_EQ(flags.config.max_staleness, 3);
}

TEST(Aliases, OneThatYieldsLeavesWhatTheFlagItselfSays) {
  const ParsedFlags flags = parsed("--recompute-activations --recompute-granularity full");
  EXPECT_THAT(flags.problems, IsEmpty());
  EXPECT_EQ(flags.config.recompute_granularity, "full");
  EXPECT_EQ(parsed("--recompute-activations").config.recompute_granularity, "selective");
}

TEST(Aliases, ASwitchThatAFileTurnsOffMeansNothing) {
  const auto path = std::filesystem::path(::testing::TempDir()) / "aliases.yaml";
  std::ofstream(path) << "fp16: false\nfp32: true\n";
  const ParsedFlags flags = parsed("--config " + path.string());
  EXPECT_THAT(flags.problems, IsEmpty());
  EXPECT_EQ(flags.config.dtype, "float32");
}

TEST(Aliases, FunctionsOfTheUsersSeeThemAsTheyWereGiven) {
  const RunConfig config = parsed("--fp16 --staleness-threshold 1.5").config;
  const RunConfig back = run_config_from(to_json(config));
  const json::object flags = flags_for_users(back);
  EXPECT_EQ(flags.at("fp16"), json::value(true));
  EXPECT_EQ(flags.at("bf16"), json::value(false));
  EXPECT_EQ(flags.at("staleness_threshold"), json::value(1.5));
  EXPECT_TRUE(flags.at("max_weight_staleness").is_null());
  EXPECT_EQ(flags.at("max_staleness"), json::value(1));
}

TEST(Aliases, AreReadWhereWhatTheyMeanIsRead) {
  ParsedFlags flags = parsed("--train-async --max-weight-staleness 1");
  forget_reads(flags.config);
  EXPECT_EQ(flags.config.max_staleness, 1);  // a read
  EXPECT_THAT(unread_flags(flags), ::testing::Not(::testing::Contains("--max-weight-staleness")));
}

}  // namespace
}  // namespace slime::config
