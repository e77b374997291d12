#include "view/sample_index.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "view/sample_query.h"

namespace slime::view {
namespace {

namespace fs = std::filesystem;

class SampleIndexTest : public testing::Test {
 protected:
  SampleIndexTest() : run_(fs::temp_directory_path() / fmt::format("slime_view_{}", ::getpid())) {
    fs::remove_all(run_);
    fs::create_directories(run_ / "rollouts");
  }
  ~SampleIndexTest() override { fs::remove_all(run_); }

  /// A step of one group with these rewards.
  void write_step(int64_t step, const std::vector<double>& rewards) const {
    std::ofstream file(run_ / "rollouts" / fmt::format("step_{:06d}.jsonl", step));
    for (const double reward : rewards) {
      file << fmt::format(
          R"({{"group_index": {}, "reward": {}, "response_length": 2, "prompt": "p", "response": "step {}"}})"
          "\n",
          step, reward, step);
    }
  }

  const fs::path run_;
  IndexBudget budget_;
};

TEST_F(SampleIndexTest, TheNewestStepIsIndexedFirst) {
  for (int64_t step = 0; step < 3; ++step) write_step(step, {0, 1});
  SampleIndex index(run_, budget_);
  EXPECT_TRUE(index.index_one());
  ASSERT_EQ(index.steps().size(), 1U);
  EXPECT_EQ(index.steps()[0]->step, 2);
  while (index.index_one()) {
  }
  EXPECT_EQ(index.steps().size(), 3U);
  EXPECT_EQ(budget_.used, 6U);
}

TEST_F(SampleIndexTest, StepsNobodyLookedAtAreForgottenFirst) {
  for (int64_t step = 0; step < 4; ++step) write_step(step, {0, 1});
  budget_.max_entries = 4;
  SampleIndex index(run_, budget_);
  while (index.index_one()) {
  }
  EXPECT_EQ(budget_.used, 4U);  // steps 3 and 2; the thread forgets nothing
  EXPECT_NE(index.step(3), nullptr);
  EXPECT_EQ(index.step(0)->entries.size(), 2U);  // in the place of step 2
  EXPECT_EQ(budget_.used, 4U);
  std::vector<int64_t> steps;
  for (const SampleIndex::Step& step : index.steps()) steps.push_back(step->step);
  EXPECT_EQ(steps, (std::vector<int64_t>{0, 3}));
}

TEST_F(SampleIndexTest, EntriesAreGivenBackWithTheIndex) {
  write_step(0, {0, 1});
  {
    SampleIndex index(run_, budget_);
    EXPECT_NE(index.step(0), nullptr);
    EXPECT_EQ(budget_.used, 2U);
  }
  EXPECT_EQ(budget_.used, 0U);
}

TEST_F(SampleIndexTest, GroupsOfEqualRewardsAreMarked) {
  write_step(0, {1, 1, 1});
  write_step(1, {1, 0, 1});
  write_step(2, {1});  // one sample is not a group that could differ
  SampleIndex index(run_, budget_);
  EXPECT_EQ(index.step(0)->num_dead_groups, 1);
  EXPECT_TRUE(index.step(0)->entries[1].is_in_dead_group);
  EXPECT_EQ(index.step(1)->num_dead_groups, 0);
  EXPECT_EQ(index.step(2)->num_dead_groups, 0);
}

TEST_F(SampleIndexTest, ALineOfAReplacedFileIsNotRead) {
  write_step(0, {0, 1});
  SampleIndex index(run_, budget_);
  const SampleIndex::Step step = index.step(0);
  EXPECT_NE(line_of(*step, step->entries[1]).find("\"reward\": 1"), std::string::npos);
  write_step(0, {0.125, 1});
  EXPECT_EQ(line_of(*step, step->entries[1]), "");
}

TEST_F(SampleIndexTest, ASearchWithoutTimeSaysWhereItGoesOn) {
  for (int64_t step = 0; step < 3; ++step) write_step(step, {0, 1});
  SampleIndex index(run_, budget_);
  while (index.index_one()) {
  }
  SampleQuery query{.text = "STEP"};
  const FoundSamples first = find_samples(index, query, std::chrono::milliseconds(-1));
  EXPECT_EQ(first.samples.size(), 2U);  // of step 2, at least one step is read
  EXPECT_EQ(first.next_step, 1);
  query.last_step = first.next_step;
  EXPECT_EQ(find_samples(index, query).samples.size(), 4U);
}

}  // namespace
}  // namespace slime::view
