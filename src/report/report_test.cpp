#include "report/report.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <string>

#include "core/error.h"
#include "core/json.h"
#include "report/report_rollouts.h"
#include "report/run_files.h"

namespace slime::report {
namespace {

namespace fs = std::filesystem;

class ReportTest : public testing::Test {
 protected:
  ReportTest()
      : run_(fs::temp_directory_path() / ("slime_report_" + std::to_string(::getpid())) / "runs" /
             "tiny") {
    fs::remove_all(run_.parent_path().parent_path());
    fs::create_directories(run_ / "rollouts");
  }
  ~ReportTest() override { fs::remove_all(run_.parent_path().parent_path()); }

  void write(const std::string& name, const std::string& text) const {
    std::ofstream(run_ / name, std::ios::binary) << text;
  }
  std::string page(const ReportLimits& limits = {}) { return report_page(run_, limits, result_); }
  /// What the page's JavaScript reads.
  json::object data(const ReportLimits& limits = {}) {
    const std::string text = page(limits);
    const std::string mark = "<script type=\"application/json\" id=\"data\">";
    const std::size_t begin = text.find(mark) + mark.size();
    return parse_json(text.substr(begin, text.find("</script>", begin) - begin), "page")
        .get_object();
  }

  const fs::path run_;
  ReportResult result_;
};

std::string sample_line(int64_t group, const std::string& response) {
  json::object line{{"group_index", group},
                    {"index_in_group", 0},
                    {"prompt", "p"},
                    {"tokens", {1, 2, 3}},
                    {"response", response},
                    {"response_length", 2},
                    {"reward", 1.0},
                    {"status", "completed"},
                    {"rollout_log_probs", {-0.5, -0.123456789}},
                    {"train_log_probs", {-0.25, -0.1}},
                    {"token_texts", {"a", "b"}},
                    {"weight_versions", {json::array{3, 2}}}};
  return json_text(line) + "\n";
}

TEST_F(ReportTest, MetricsBecomeSeries) {
  write("metrics.jsonl",
        "{\"step\": 0, \"time\": 100, \"x\": 1.5}\n{\"step\": 1, \"time\": 103, \"x\": null, "
        "\"y\": 2}\n");
  const json::object page_data = data();
  EXPECT_EQ(page_data.at("metrics").at("x"),
            json::parse(R"({"steps": [0, 1], "values": [1.5, null]})"));
  EXPECT_EQ(page_data.at("metrics").at("y"), json::parse(R"({"steps": [1], "values": [2.0]})"));
  EXPECT_EQ(page_data.at("seconds").to_number<double>(), 3.0);
  EXPECT_EQ(page_data.at("name"), "tiny");
  EXPECT_TRUE(result_.problems.empty());
}

TEST_F(ReportTest, StepsThatLackAMetricAreAGapAndEvaluationsAreJoined) {
  std::string lines;
  for (const int step : {0, 1, 2, 5, 6}) lines += fmt::format("{{\"step\": {}, \"x\": 1}}\n", step);
  for (const int step : {0, 2, 4, 9, 11})
    lines += fmt::format("{{\"step\": {}, \"eval/y\": 1, \"z\": 1}}\n", step);
  write("metrics.jsonl", lines);
  const json::value metrics = data().at("metrics");
  EXPECT_EQ(metrics.at("x"),
            json::parse(R"({"steps": [0,1,2,3,5,6], "values": [1.0,1.0,1.0,null,1.0,1.0]})"));
  EXPECT_EQ(metrics.at("eval/y").at("steps"), json::parse("[0,2,4,9,11]"));
  EXPECT_EQ(metrics.at("z").at("steps"), json::parse("[0,2,4,6,9,11]"));  // every second step
}

TEST_F(ReportTest, TheLaterLineOfAStepCountsAndStrayStepsAreSorted) {
  write("metrics.jsonl",
        "{\"step\": 2, \"x\": 1}\n{\"step\": 1, \"x\": 5}\n{\"step\": 2, \"x\": 3}\n");
  EXPECT_EQ(data().at("metrics").at("x"),
            json::parse(R"({"steps": [1, 2], "values": [5.0, 3.0]})"));
}

TEST_F(ReportTest, AlarmsAreOnThePage) {
  std::string lines;
  for (int step = 0; step < 3; ++step)
    lines += fmt::format("{{\"step\": {}, \"train/grad_norm\": 0.0}}\n", step);
  write("metrics.jsonl", lines);
  const json::value alarms = data().at("alarms");
  ASSERT_EQ(alarms.as_array().size(), 1u);
  EXPECT_EQ(alarms.at(0).at("kind"), "zero_gradients");
}

TEST_F(ReportTest, ModulesOfThePageBecomeOneScript) {
  write("metrics.jsonl", "{\"step\": 0, \"x\": 1}\n");
  const std::string text = page();
  EXPECT_EQ(text.find("\nimport "), std::string::npos);
  EXPECT_EQ(text.find("\nexport "), std::string::npos);
  EXPECT_NE(text.find("\nclass Plot {"), std::string::npos);
}

TEST_F(ReportTest, MalformedLinesAreNamedAndSkipped) {
  write("metrics.jsonl",
        "{\"step\": 0, \"x\": 1}\nnot json\n[1]\n{\"x\": 1}\n{\"step\": 1, \"x\": 2}\n{\"step\": "
        "2, \"x");
  EXPECT_EQ(data().at("metrics").at("x").at("steps").get_array().size(), 2u);
  ASSERT_EQ(result_.problems.size(), 4u);
  EXPECT_NE(result_.problems[0].find("metrics.jsonl, line 2"), std::string::npos);
  EXPECT_NE(result_.problems[1].find("line 3: should be a JSON object"), std::string::npos);
  EXPECT_NE(result_.problems[2].find("line 6: incomplete"), std::string::npos);
  EXPECT_NE(result_.problems[3].find("no \"step\" that is a whole number"), std::string::npos);
}

TEST_F(ReportTest, HostileTextNeverLeavesTheJson) {
  const std::string attack = "</script><script>alert('&')</script><!--";
  write("rollouts/rollout_000003.jsonl", sample_line(0, attack));
  const std::string text = page();
  EXPECT_EQ(text.find(attack), std::string::npos);
  EXPECT_EQ(text.find("alert('"), text.rfind("alert('"));  // once, and there escaped:
  EXPECT_NE(text.find("\\u003c/script\\u003e\\u003cscript\\u003ealert('\\u0026')"),
            std::string::npos);
  EXPECT_EQ(data().at("rollouts").at(0).at("response"),
            json::value(attack));  // and it reads back as it was
}

TEST_F(ReportTest, ThePageLoadsNothing) {
  write("metrics.jsonl", "{\"step\": 0, \"x\": 1}\n");
  const std::string text = page();
  for (const char* mark : {"src=", "href=", "@import", "url(http", "fetch("})
    EXPECT_EQ(text.find(mark), std::string::npos) << mark;
  // The one address is a name space.
  EXPECT_EQ(text.find("http://"), text.find("http://www.w3.org/2000/svg"));
  EXPECT_EQ(text.rfind("http://"), text.find("http://"));
  EXPECT_EQ(text.find("https://"), std::string::npos);
}

TEST_F(ReportTest, ASampleHasItsResponsesNumbersRoundedForReading) {
  write("rollouts/12.jsonl", sample_line(7, "ab"));
  const json::object page_data = data();
  const json::object& sample = page_data.at("rollouts").at(0).get_object();
  EXPECT_EQ(sample.at("step"), 12);
  EXPECT_EQ(sample.at("group"), 7);
  EXPECT_EQ(sample.at("log_probs"), json::parse("[-0.5, -0.12346]"));
  EXPECT_EQ(sample.at("train_log_probs"), json::parse("[-0.25, -0.1]"));
  EXPECT_EQ(sample.at("ids"), json::parse("[2, 3]"));
}

TEST_F(ReportTest, ListsThatDoNotFitTheResponseAreLeftOut) {
  const json::object line =
      json::parse(
          R"({"response": "ab", "response_length": 2, "rollout_log_probs": [-1], "token_texts": ["a", 5],
                                           "reward": {"acc": true, "score": 0.5}, "status": 7})")
          .get_object();
  const json::object sample = page_sample(line, 0, "acc");
  EXPECT_FALSE(sample.contains("log_probs"));
  EXPECT_FALSE(sample.contains("token_texts"));
  EXPECT_EQ(sample.at("reward"), 1.0);
  EXPECT_EQ(sample.at("reward_record").at("score"), 0.5);
  EXPECT_EQ(sample.at("status"), "7");
}

TEST_F(ReportTest, BeyondTheLimitEveryStepKeepsSomeGroups) {
  for (int step = 0; step < 4; ++step) {
    std::string lines;
    for (int64_t group = 0; group < 50; ++group)
      lines += sample_line(group, std::string(1000, 'x'));
    write("rollouts/" + std::to_string(step) + ".jsonl", lines);
  }
  const json::object page_data = data({.rollout_bytes = 40'000});
  std::map<int64_t, int64_t> count_by_step;
  uint64_t bytes = 0;
  for (const json::value& sample : page_data.at("rollouts").get_array()) {
    ++count_by_step[sample.at("step").to_number<int64_t>()];
    bytes += json_text(sample).size();
  }
  EXPECT_EQ(count_by_step.size(), 4u);
  EXPECT_LE(bytes, 40'000u);
  EXPECT_GE(bytes, 20'000u);
  ASSERT_FALSE(result_.problems.empty());
  EXPECT_NE(result_.problems.back().find("of 200 rollouts"), std::string::npos);
}

TEST_F(ReportTest, ALongSeriesIsThinnedAndKeepsItsLastPoint) {
  std::string lines;
  for (int step = 0; step < 1000; ++step)
    lines += "{\"step\": " + std::to_string(step) + ", \"x\": 1}\n";
  write("metrics.jsonl", lines);
  const json::value steps = data({.points_per_metric = 100}).at("metrics").at("x").at("steps");
  EXPECT_EQ(steps.get_array().size(), 100u);
  EXPECT_EQ(steps.get_array().back(), 999);
}

TEST_F(ReportTest, FlagsOfTheRunAreShownAsTheUserTypedThem) {
  write("metrics.jsonl", "{\"step\": 0, \"x\": 1}\n");
  write("run.json", R"({"flags": {"hf-checkpoint": "models/<b>", "lr": 2e-05}})");
  const json::object page_data = data();
  EXPECT_EQ(page_data.at("model"), "models/<b>");
  EXPECT_EQ(page_data.at("flags").get_array().size(), 2u);
}

TEST_F(ReportTest, NumbersOfFlagsAreWrittenAsPeopleWriteThem) {
  write("metrics.jsonl", "{\"step\": 0, \"time\": 1, \"x\": 1}\n");
  write("run.json", R"({"flags": {"a": 1E-4, "b": 1e-06, "c": 2.5E-1, "d": 20, "e": 1e25,
                                  "f": [0.5, 1e-3], "g": 0.00010000000000000001}})");
  const json::object page_data = data();
  std::map<std::string, std::string> shown;
  for (const json::value& each : page_data.at("flags").get_array()) {
    const json::array& pair = each.get_array();
    shown[std::string(pair[0].get_string())] = std::string(pair[1].get_string());
  }
  EXPECT_EQ(shown, (std::map<std::string, std::string>{{"a", "0.0001"},
                                                       {"b", "1e-6"},
                                                       {"c", "0.25"},
                                                       {"d", "20"},
                                                       {"e", "1e25"},
                                                       {"f", "0.5 0.001"},
                                                       {"g", "0.0001"}}));
}

TEST_F(ReportTest, AFolderWithoutARunIsAConfigurationError) {
  EXPECT_THROW(page(), ConfigError);
  EXPECT_THROW(report_page(run_ / "nowhere", {}, result_), ConfigError);
}

TEST_F(ReportTest, WritesTheFileWholeOrNotAtAll) {
  write("metrics.jsonl", "{\"step\": 0, \"x\": 1}\n");
  const ReportResult result = write_report(run_, run_ / "report.html");
  EXPECT_EQ(fs::file_size(run_ / "report.html"), result.page_bytes);
  EXPECT_FALSE(fs::exists(run_ / "report.html.part"));
  EXPECT_THROW(write_report(run_, run_ / "no" / "folder.html"), ConfigError);
}

TEST(Report, TheTitleIsEscaped) {
  EXPECT_EQ(html_escaped("<a href=\"x\">&'"), "&lt;a href=&quot;x&quot;&gt;&amp;&#39;");
}

TEST(Report, RolloutFilesAreOrderedByTheNumberInTheirName) {
  const fs::path folder =
      fs::temp_directory_path() / ("slime_rollout_names_" + std::to_string(::getpid()));
  fs::create_directories(folder);
  for (const char* name :
       {"rollout_10.jsonl", "rollout_9.jsonl", "v2_step000011.jsonl", "notes.txt", "none.jsonl"})
    std::ofstream(folder / name) << "";
  std::vector<int64_t> steps;
  for (const RolloutFile& file : rollout_files(folder)) steps.push_back(file.step);
  fs::remove_all(folder);
  EXPECT_EQ(steps, (std::vector<int64_t>{9, 10, 11}));
}

}  // namespace
}  // namespace slime::report
