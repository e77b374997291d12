#include "report/run_timeline.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string>

namespace slime::report {
namespace {

class RunTimelineTest : public testing::Test {
 protected:
  ~RunTimelineTest() override { std::filesystem::remove(path_); }
  json::object read(const std::string& text, const TimelineLimits& limits = {}) {
    std::ofstream(path_, std::ios::binary) << text;
    return timeline_json(path_, limits, problems_);
  }

  const std::filesystem::path path_ =
      std::filesystem::temp_directory_path() /
      ("slime_run_timeline_" + std::to_string(::getpid()) + ".jsonl");
  std::vector<std::string> problems_;
};

const char* const kTwoSteps =
    R"({"step": 0, "steps": 1, "time": 5, "ms": 1000, "trainer": [["wait", 0, 500], ["train", 500, 500]], "engine": [["generate", 0, 750]]}
{"step": 1, "steps": 1, "time": 9000, "ms": 1000, "trainer": [["train", 0, 1000]]}
)";

TEST_F(RunTimelineTest, BinsAreSharesOfTimeAndPausesBetweenProcessesAreLeftOut) {
  const json::object all = read(kTwoSteps, {.bins = 4});
  EXPECT_EQ(all.at("seconds"), 2.0);
  const json::array& lanes = all.at("lanes").as_array();
  ASSERT_EQ(lanes.size(), 2u);
  EXPECT_EQ(lanes[0].at("name"), "trainer");
  EXPECT_EQ(lanes[0].at("phases").at(1).at("seconds"), 1.5);
  EXPECT_EQ(lanes[0].at("phases").at(0).at("bins"), (json::array{1.0, 0.0, 0.0, 0.0}));
  EXPECT_EQ(lanes[0].at("phases").at(1).at("bins"), (json::array{0.0, 1.0, 1.0, 1.0}));
  EXPECT_EQ(lanes[1].at("phases").at(0).at("bins"), (json::array{1.0, 0.5, 0.0, 0.0}));
  EXPECT_TRUE(problems_.empty());
}

TEST_F(RunTimelineTest, TheWindowHasTheLastLinesThatFit) {
  const json::object last = read(kTwoSteps, {.spans = 2}).at("window").as_object();
  EXPECT_EQ(last.at("seconds"), 1.0);
  EXPECT_EQ(last.at("ends").as_array().size(), 1u);
  EXPECT_EQ(last.at("lanes").at(0).at("spans").as_array().size(), 1u);
  EXPECT_EQ(read(kTwoSteps).at("window").at("seconds"), 2.0);
  EXPECT_EQ(read(kTwoSteps, {.window_seconds = 1.5}).at("window").at("seconds"), 1.0);
}

TEST_F(RunTimelineTest, WhatIsNoTimelineIsNamedAndLeftOut) {
  EXPECT_TRUE(timeline_json(path_, {}, problems_).empty());
  EXPECT_TRUE(problems_.empty()) << "older runs have none";
  const std::string odd =
      R"({"step": 0, "ms": 1e300}
{"step": -1, "ms": 1}
{"step": 0, "ms": 1000, "engine": 7}
{"step": 0, "ms": 1000, "engine": [["generate", -5, 1]]}
{"step": 0, "ms": 1000, "engine": [["generate", 0]]}
{"step": 0.5, "ms": 1000}
[1]
{"step": 0, "ms"
)";
  EXPECT_TRUE(read(odd).empty());
  EXPECT_EQ(problems_.size(), 3u) << "two lines that are no objects, and six of no timeline";
  problems_.clear();
  // Phases that reach beyond their line are clipped, names without end are one.
  std::string names = R"({"step": 0, "ms": 1000, "engine": [["generate", 500, 99999])";
  for (int i = 0; i < 100; ++i) names += ", [\"p" + std::to_string(i) + "\", 0, 1]";
  const json::object many = read(names + "]}\n");
  EXPECT_EQ(many.at("lanes").at(0).at("phases").as_array().size(), 16u);
  EXPECT_EQ(many.at("lanes").at(0).at("phases").at(0).at("seconds"), 0.5);
}

}  // namespace
}  // namespace slime::report
