#include "report/metric_row.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "core/json.h"
#include "report/run_files.h"
#include "view/metric_tail.h"

namespace slime::report {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

/// A file with a row of each step, written as the steps are given.
fs::path file_of(const std::vector<std::string>& steps) {
  const fs::path folder = fs::path(testing::TempDir()) / "metric_rows";
  fs::remove_all(folder);
  fs::create_directories(folder);
  std::ofstream file(folder / "metrics.jsonl");
  for (const std::string& step : steps)
    file << R"({"step": )" << step << R"(, "loss": 1})"
         << "\n";
  return folder / "metrics.jsonl";
}

TEST(MetricRows, HaveAStepThatARunCanHave) {
  for (const char* good : {R"({"step": 0})", R"({"step": 9007199254740992})"})
    EXPECT_TRUE(step_of_row(read_metric_row(good).value())) << good;
  for (const char* bad : {"{}", R"({"step": -5})", R"({"step": 1.5})", R"({"step": "1"})",
                          R"({"step": 9007199254740993})", R"({"step": 9223372036854775807})"})
    EXPECT_FALSE(step_of_row(read_metric_row(bad).value())) << bad;
  EXPECT_FALSE(read_metric_row(R"({"step": 1)"));
  EXPECT_FALSE(read_metric_row("[1]"));
}

TEST(MetricRows, OfStepsThatThereAreNotAreLeftOutAndTold) {
  const RunMetrics metrics =
      read_metrics(file_of({"-5", "0", "9223372036854775807", "1"}), /*max_points=*/100);
  EXPECT_THAT(metrics.series.at("loss").steps, ElementsAre(0, 1));
  EXPECT_EQ(metrics.num_steps, 2);
  EXPECT_THAT(metrics.problems, ElementsAre(HasSubstr("2 lines have no \"step\"")));
}

TEST(MetricRows, OfStepsThatThereAreNotDoNotReachAnOpenPage) {
  const fs::path file = file_of({"-5", "3"});
  const view::TailRows tail = view::rows_since(file, "0", std::size_t{1} << 20);
  ASSERT_EQ(tail.rows.size(), 1U);
  EXPECT_EQ(tail.rows[0].at("step"), 3);
}

TEST(RolloutFileNames, OfNumbersThatAreNoStepsAreLeftOut) {
  const fs::path folder = file_of({}).parent_path();
  for (const char* name : {"step_000002.jsonl", "step_9223372036854775807.jsonl"})
    std::ofstream(folder / name) << "{}\n";
  const std::vector<RolloutFile> files = rollout_files(folder);
  ASSERT_EQ(files.size(), 1U);
  EXPECT_EQ(files[0].step, 2);
}

}  // namespace
}  // namespace slime::report
