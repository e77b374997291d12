#include "report/run_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <fstream>
#include <sstream>

#include "core/error.h"
#include "core/replace_file.h"
#include "report/branch_files.h"
#include "report/terminal.h"

namespace slime::report {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

/// A folder with what a run leaves.
void leave_run(const fs::path& root, int64_t num_steps, int64_t steps, const json::object& flags,
               std::string_view ended = "") {
  fs::create_directories(root);
  json::object run{{"num_rollout", num_steps}, {"flags", flags}};
  if (!ended.empty()) run["ended"] = json::object{{"how", ended}};
  replace_file(root / "run.json", json_text(run));
  std::ofstream metrics(root / "metrics.jsonl");
  for (int64_t step = 0; step < steps; ++step)
    metrics << "{\"step\": " << step << ", \"time\": 1000, \"rollout/raw_reward\": 0." << step + 1
            << "}\n{\"step\": " << step << ", \"time\": 1001, \"eval/x\": 1}\n";
}

fs::path fresh_root(const std::string& name) {
  fs::path root = fs::path(testing::TempDir()) / ("run_list_" + name);
  fs::remove_all(root);
  return root;
}

TEST(RunList, TellsHowEachRunEnded) {
  const fs::path root = fresh_root("ends");
  leave_run(root / "a", 4, 4, {}, "finished");
  leave_run(root / "b", 4, 2, {}, "interrupted");
  leave_run(root / "c", 4, 2, {}, "failed");
  leave_run(root / "d", 4, 2, {});
  leave_run(root / "e", 4, 0, {});
  std::vector<std::string> states;
  std::vector<ListedRun> runs = list_runs({root});
  std::ranges::sort(runs, {}, &ListedRun::name);
  for (const ListedRun& run : runs) states.push_back(run.main.state);
  EXPECT_THAT(states, ElementsAre("finished", "interrupted", "failed", "died", "not begun"));
  EXPECT_EQ(runs[1].main.last_step, 1);
  EXPECT_DOUBLE_EQ(*runs[1].main.reward, 0.2);
}

TEST(RunList, RunsOfSeveralFoldersAreComparedByTheirPaths) {
  const fs::path root = fresh_root("several");
  leave_run(root / "a/one", 4, 4, {{"--lr", 1e-6}}, "finished");
  leave_run(root / "b/one", 4, 4, {{"--lr", 2e-6}}, "finished");
  std::vector<ListedRun> runs = list_runs({root / "a", root / "b/one", root / "b"});
  sort_runs(runs, "name");
  ASSERT_EQ(runs.size(), 2U) << "b/one is once there";
  EXPECT_EQ(runs[0].name, (root / "a/one").string());
  EXPECT_EQ(runs[1].name, (root / "b/one").string());
  EXPECT_THAT(runs[1].main.differences, ElementsAre(HasSubstr("--lr")));
}

TEST(RunList, SupervisedRunsHaveALossAndNoReward) {
  const fs::path root = fresh_root("supervised");
  const auto leave = [&root](const char* name, const json::object& flags, double loss) {
    leave_run(root / name, 4, 4, flags);
    std::ofstream(root / name / "metrics.jsonl", std::ios::app)
        << fmt::format("{{\"step\": 3, \"rollout/raw_reward\": 0, \"train/loss\": {}}}\n", loss);
  };
  leave("a",
        {{"--loss-type", "sft_loss"},
         {"--rollout-function-path", "slime.rollout.sft_rollout.generate_rollout"}},
        0.12345);
  leave("b", {{"--loss-type", "dpo_loss"}}, 0.0000123);
  leave("c", {{"--loss-type", "sft_loss"}, {"--rollout-function-path", "mine.of_samples"}}, 0.5);
  leave("d", {{"--lr", 1}}, 0.5);
  std::vector<ListedRun> runs = list_runs({root});
  std::ranges::sort(runs, {}, &ListedRun::name);
  std::istringstream lines(table_of_runs(runs, 80, false, 1060));
  std::vector<std::string> rows;
  for (std::string line; std::getline(lines, line);)
    if (!line.starts_with(' ')) rows.push_back(line);
  ASSERT_EQ(rows.size(), 5U);
  EXPECT_THAT(rows[1], HasSubstr(" loss 0.123 "));
  EXPECT_THAT(rows[2], HasSubstr(" loss 1e-05 "));
  EXPECT_THAT(rows[3], testing::AllOf(HasSubstr(" 0 "), Not(HasSubstr("loss 0"))));
  EXPECT_THAT(rows[4], Not(HasSubstr("loss 0")));
  EXPECT_FALSE(runs[0].main.reward);
  const json::array records = to_json(runs);
  EXPECT_TRUE(records[0].at("reward").is_null());
  EXPECT_DOUBLE_EQ(records[0].at("loss").as_double(), 0.12345);
}

TEST(RunList, FailedRunsSayWhy) {
  const fs::path root = fresh_root("why");
  fs::create_directories(root);
  const json::object end{{"how", "failed"}, {"why", "the reward server is gone\nsecond line"}};
  replace_file(root / "run.json", json_text(json::object{{"num_rollout", 4}, {"ended", end}}));
  const std::vector<ListedRun> runs = list_runs({root});
  EXPECT_EQ(runs.at(0).main.why, "the reward server is gone");
  EXPECT_THAT(table_of_runs(runs, 80, false, 0), HasSubstr("why: the reward server is gone\n"));
}

TEST(RunList, SettingsThatDifferAreColumnsAndRunsAreSorted) {
  const fs::path root = fresh_root("columns");
  leave_run(root / "a", 4, 3, {{"--lr", 1e-6}, {"--rm-type", "math"}});
  leave_run(root / "b", 4, 1, {{"--lr", 2e-6}, {"--rm-type", "math"}});
  leave_run(root / "c", 4, 2, {{"--rm-type", "math"}, {"--note", std::string(30, 'x')}});
  std::vector<ListedRun> runs = list_runs({root});
  sort_runs(runs, "reward");
  const std::string table = table_of_runs(runs, 100, false, 1060);
  std::istringstream lines(table);
  std::vector<std::string> rows;
  for (std::string line; std::getline(lines, line);) rows.push_back(line);
  ASSERT_EQ(rows.size(), 5U) << table;
  EXPECT_THAT(rows[0], testing::EndsWith("AGO lr   "));
  EXPECT_THAT(rows[1], testing::AllOf(testing::StartsWith("b "), testing::EndsWith(" 2e-06")));
  EXPECT_THAT(rows[2], testing::AllOf(testing::StartsWith("c "), HasSubstr(" - ")));
  EXPECT_THAT(rows[3], HasSubstr("    --note xxx")) << "too wide for a column";
  EXPECT_THAT(rows[4], testing::AllOf(testing::StartsWith("a "), testing::EndsWith(" 1e-06")));
  EXPECT_THROW(sort_runs(runs, "colour"), ConfigError);
}

TEST(RunList, BranchesStandUnderTheirParentsWithWhatDiffers) {
  const fs::path root = fresh_root("tree");
  leave_run(root, 9, 9, {{"--lr", 1e-6}, {"--run-dir", "x"}}, "finished");
  const BranchPlace base{root, root / "checkpoints"};
  const auto branch = [&](const std::string& name, const std::string& parent, int64_t from,
                          double lr) {
    mark_unfinished(base, name);
    leave_run(place_of_branch(base, name).root, 9, from + 2, {{"--lr", lr}, {"--run-dir", "y"}});
    write_origin(base, name, {.parent = parent, .step = from});
    mark_finished(base, name);
  };
  branch("aaaaaaaa", kMainBranch, 4, 2e-6);
  branch("bbbbbbbb", "aaaaaaaa", 5, 2e-6);
  branch("cccccccc", kMainBranch, 2, 1e-6);
  mark_unfinished(base, "dddddddd");
  set_active_branch(base, "bbbbbbbb", 5);
  const std::vector<ListedRun> runs = list_runs({root});
  ASSERT_EQ(runs.size(), 1U);
  const ListedBranch& main = runs[0].main;
  ASSERT_EQ(main.children.size(), 2U);
  EXPECT_EQ(main.children[0].name, "cccccccc") << "the earliest first";
  EXPECT_THAT(main.children[0].differences, ElementsAre());
  EXPECT_THAT(main.children[1].differences, ElementsAre("--lr 1e-06 -> 2e-06"));
  ASSERT_EQ(main.children[1].children.size(), 1U);
  EXPECT_TRUE(main.children[1].children[0].is_active);
  const std::string table = table_of_runs(runs, 80, false, 1060);
  EXPECT_THAT(table, HasSubstr("|- cccccccc after 2"));
  EXPECT_THAT(table, HasSubstr("`- aaaaaaaa after 4"));
  EXPECT_THAT(table, HasSubstr("   `- bbbbbbbb after 5 *"));
}

TEST(RunList, DeletedBranchesAreNamed) {
  const fs::path root = fresh_root("deleted");
  leave_run(root, 9, 9, {}, "finished");
  const BranchPlace base{root, root / "checkpoints"};
  const auto branch = [&](const std::string& name, const std::string& parent, int64_t from) {
    mark_unfinished(base, name);
    leave_run(place_of_branch(base, name).root, 9, from + 2, {});
    write_origin(base, name, {.parent = parent, .step = from});
    mark_finished(base, name);
  };
  branch("aaaaaaaa", kMainBranch, 4);
  branch("bbbbbbbb", "aaaaaaaa", 5);
  branch("cccccccc", kMainBranch, 2);
  set_active_branch(base, "aaaaaaaa", 5);
  fs::remove_all(place_of_branch(base, "aaaaaaaa").root);
  const std::vector<ListedRun> runs = list_runs({root});
  EXPECT_EQ(runs.at(0).lost_branch, "aaaaaaaa");
  const std::string table = table_of_runs(runs, 80, false, 1060);
  EXPECT_THAT(table, HasSubstr("cccccccc after 2 "));
  EXPECT_THAT(table, HasSubstr("bbbbbbbb after 5 "));
  EXPECT_THAT(table, HasSubstr("its parent aaaaaaaa is deleted"));
  EXPECT_THAT(table, HasSubstr("its active branch aaaaaaaa is deleted; --load SAVE/branches/main "
                               "goes on\n"));
  EXPECT_THAT(table, Not(HasSubstr("after -1")));
  // Nobody knows where this one began.
  replace_file(root / "branches/cccccccc/checkpoints/rollout/branch.json", "{");
  const std::string other = table_of_runs(list_runs({root}), 80, false, 1060);
  EXPECT_THAT(other, HasSubstr("cccccccc"));
  EXPECT_THAT(other, Not(HasSubstr("after -1")));
}

TEST(RunList, NoLineIsWiderThanTheTerminal) {
  const fs::path root = fresh_root("width");
  json::object flags;
  for (int i = 0; i < 40; ++i)
    flags[fmt::format("--a-flag-with-a-long-name-{}", i)] = std::string(60, 'x');
  leave_run(root / std::string(90, 'n'), 1000000, 1, flags);
  leave_run(root / "second", 3, 1, {});
  const std::vector<ListedRun> runs = list_runs({root});
  for (const int width : {60, 80, 120}) {
    std::istringstream lines(table_of_runs(runs, width, false, 1e9));
    for (std::string line; std::getline(lines, line);)
      EXPECT_LE(display_width(line), width) << line;
  }
  EXPECT_THAT(table_of_runs(runs, 80, false, 0), HasSubstr("more"));
}

TEST(RunList, DamagedFilesLeaveTheRestReadable) {
  const fs::path root = fresh_root("damage");
  leave_run(root / "a", 4, 2, {});
  std::ofstream(root / "a" / "metrics.jsonl", std::ios::app) << "{\"step\": 2, \"ti";
  fs::create_directories(root / "b");
  std::ofstream(root / "b" / "run.json") << "{";
  fs::create_directories(root / "a" / "checkpoints" / "rollout");
  std::ofstream(root / "a" / "checkpoints" / "rollout" / "current.json") << "[]";
  const std::vector<ListedRun> runs = list_runs({root});
  ASSERT_EQ(runs.size(), 2U);
  EXPECT_FALSE(table_of_runs(runs, 80, true, 2000).empty());
}

}  // namespace
}  // namespace slime::report
